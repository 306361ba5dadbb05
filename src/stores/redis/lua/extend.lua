-- KEYS: index. ARGV: lock id, ttl ms, tolerance ms, the server's time in ms after which nothing may change, or nothing.
-- Answers {1, expiresAtMs, lock id}, 0 not the owner, -1 missing, -2 expired, {-3, now} if it came too late.
if late(ARGV[4]) then return {-3, now} end
local key = redis.call('GET', KEYS[1])
local value = key and redis.call('GET', key)
if not value then return -1 end
local lock, live = read(value, ARGV[3])
if not lock then return redis.error_reply(FOREIGN) end
if lock.lockId ~= ARGV[1] then return 0 end
if not live then
  redis.call('DEL', key, KEYS[1])
  return -2
end
lock.expiresAtMs = now + ARGV[2]
-- Encoded from the decoded table, as the TypeScript library does: the fields then stand in the same order as its own.
local renewed = cjson.encode(lock)
redis.call('SET', KEYS[1], key, 'PX', ARGV[2])
redis.call('SET', key, renewed, 'PX', ARGV[2])
return {1, lock.expiresAtMs, ARGV[1]}
