-- KEYS: lock. ARGV: tolerance ms. Answers the stored value if it is live, or nil.
local value = redis.call('GET', KEYS[1])
if not value then return false end
local lock, live = read(value, ARGV[1])
if not lock then return redis.error_reply(FOREIGN) end
return live and value
