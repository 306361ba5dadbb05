local FOREIGN = 'SYNCGUARD_FOREIGN the stored value is not a lock'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The lock in a stored value and whether it is live; nil if the value is something else.
-- Times of up to 14 digits stay exact when a number becomes text. The largest lock is 4 KB: what is far larger is not
-- worth the time of decoding it, for which all other clients would wait.
local function read(value, tolerance)
  if #value > 65536 then return end
  local ok, lock = pcall(cjson.decode, value)
  if ok and type(lock) == 'table' and type(lock.lockId) == 'string' and type(lock.expiresAtMs) == 'number'
    and lock.expiresAtMs >= 0 and lock.expiresAtMs < 1e14 and lock.expiresAtMs % 1 == 0 then
    return lock, lock.expiresAtMs > now - tolerance
  end
end

-- Whether a request has arrived after the time that its sender gave it.
local function late(not_after)
  return not_after ~= '' and now > tonumber(not_after)
end

