-- KEYS: the gate. ARGV: the fence that it must have. Answers 1 if it was forgotten, else 0.
local newest = redis.call('GET', KEYS[1])
if not newest or tonumber(newest) ~= tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', KEYS[1])
