-- KEYS: lock, fence counter, index. ARGV: lock id, ttl ms, tolerance ms, largest fence, the value up to its fence,
-- the server's time in ms after which it must not be granted, or nothing. Answers {-3, now} then.
-- Answers {1, fence, expiresAtMs, lock id}, or {0, ms left, fence, hash of the lock id, text} of the holder. Nothing is written before every check has passed.

-- The display hash of a lock id, as hash_key makes it. The id itself proves ownership: only its holder may know it.
local function hash(id)
  if #id ~= 22 or string.find(id, '[^%w_-]') then return '' end
  local a, b, d = 0, 0, 0
  for i = 1, #id do
    local c = string.byte(id, i)
    a = (31 * a + c) % 4294967296
    b = (127 * b + 3 * c) % 4294967296
    d = (2047 * d + 7 * c) % 4294967296
  end
  return string.format('%08x%08x%08x', a, b, d)
end

if late(ARGV[6]) then return {-3, now} end
local value = redis.call('GET', KEYS[1])
if value then
  local lock, live = read(value, ARGV[3])
  if not lock then return redis.error_reply(FOREIGN) end
  if live then
    if lock.lockId ~= ARGV[1] then
      local text = type(lock.holder) == 'string' and lock.holder or ''
      return {0, lock.expiresAtMs - now, tostring(lock.fence), hash(lock.lockId), text}
    end
    if type(lock.fence) ~= 'string' then return redis.error_reply(FOREIGN) end
    return {1, lock.fence, lock.expiresAtMs, ARGV[1]}
  end
end
local counter = redis.pcall('GET', KEYS[2])
if counter then
  if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE', 1, true) then return counter end
  if type(counter) ~= 'string' or #counter > 19 or not (counter == '0' or string.find(counter, '^[1-9]%d*$')) then
    return redis.error_reply('SYNCGUARD_COUNTER the stored fence counter is not a counter')
  end
  if tonumber(counter) >= tonumber(ARGV[4]) then
    return redis.error_reply('SYNCGUARD_LIMIT the fence counter is at its limit')
  end
end
-- The variable max_clock_ms stands before this text: the latest time that may become a fence, or nil where fences are counted.
if max_clock_ms and now > max_clock_ms then
  return redis.error_reply('SYNCGUARD_CLOCK the clock is too far ahead for a fence')
end
local number
if max_clock_ms and now > tonumber(counter or 0) + 1 then
  number = now
  -- Exact: how Lua itself makes a text of a number depends on its size.
  redis.call('SET', KEYS[2], string.format('%.0f', number))
else
  number = redis.call('INCR', KEYS[2])
end
local fence = string.format('%015.0f', number)
local expires = now + ARGV[2]
-- The index first: an index without its lock is nothing, a lock without its index could not be released.
redis.call('SET', KEYS[3], KEYS[1], 'PX', ARGV[2])
redis.call('SET', KEYS[1], ARGV[5] .. fence .. '","acquiredAtMs":' .. now .. ',"expiresAtMs":' .. expires .. '}', 'PX', ARGV[2])
return {1, fence, expires, ARGV[1]}
