-- KEYS: index. ARGV: lock id, tolerance ms. Answers the stored value if it is live and has this id, or nil.
local key = redis.call('GET', KEYS[1])
local value = key and redis.call('GET', key)
if not value then return false end
local lock, live = read(value, ARGV[2])
if not lock then return redis.error_reply(FOREIGN) end
return live and lock.lockId == ARGV[1] and value
