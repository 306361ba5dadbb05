-- How a client of the TypeScript library takes a lock of Redis, in words of our own: it counts, and knows nothing of fences of the clock.
-- KEYS: lock, index, fence counter. ARGV: lock id, ttl ms, tolerance ms, the lock's name for the index, the user's key.
-- Answers {1, fence, expiresAtMs}, or 0 if another one holds it.
local clock = redis.call('TIME')
local at = clock[1] * 1000 + math.floor(clock[2] / 1000)
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).expiresAtMs > at - tonumber(ARGV[3]) then
  return 0
end
local token = string.format('%015d', redis.call('INCR', KEYS[3]))
local ends = at + tonumber(ARGV[2])
local lock = cjson.encode({ lockId = ARGV[1], key = ARGV[5], fence = token, acquiredAtMs = at, expiresAtMs = ends })
redis.call('SET', KEYS[1], lock, 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[2])
return { 1, token, ends }
