-- KEYS: an index entry that no lock uses. Runs every command of the other scripts once and leaves nothing behind.
redis.call('SET', KEYS[1], 'x', 'PX', 1000)
redis.call('GET', KEYS[1])
-- It fails, because the text is no number, and by that shows that it was allowed.
local counted = redis.pcall('INCR', KEYS[1])
redis.call('DEL', KEYS[1])
if type(counted) == 'table' and not string.find(counted.err, 'not an integer', 1, true) then return counted end
return 1
