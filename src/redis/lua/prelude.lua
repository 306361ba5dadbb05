local FOREIGN = 'SYNCGUARD_FOREIGN the stored value is not a lock'

-- The lock in a stored value, or nil if it is something else. Times of up to 14 digits stay exact when written.
local function decode(value)
  local ok, lock = pcall(cjson.decode, value)
  if ok and type(lock) == 'table' and type(lock.lockId) == 'string' and type(lock.expiresAtMs) == 'number'
    and lock.expiresAtMs >= 0 and lock.expiresAtMs < 1e14 and lock.expiresAtMs % 1 == 0 then
    return lock
  end
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function is_live(lock, now, tolerance)
  return lock.expiresAtMs > now - tolerance
end

