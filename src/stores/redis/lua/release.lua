-- KEYS: index. ARGV: lock id, tolerance ms. Answers 1, 0 not the owner, -1 missing, -2 expired.
local key = redis.call('GET', KEYS[1])
local value = key and redis.call('GET', key)
if not value then return -1 end
local lock, live = read(value, ARGV[2])
if not lock then return redis.error_reply(FOREIGN) end
if lock.lockId ~= ARGV[1] then return 0 end
redis.call('DEL', key, KEYS[1])
-- Waiters are told. A user without the right to publish, or a server that cannot, releases all the same.
redis.pcall('PUBLISH', key .. ':freed', '')
return live and 1 or -2
