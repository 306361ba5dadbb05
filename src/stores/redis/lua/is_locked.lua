-- KEYS: lock. ARGV: tolerance ms. Answers 1 if it is live, else 0: the value holds the lock id, which proves ownership.
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
local lock, live = read(value, ARGV[1])
if not lock then return redis.error_reply(FOREIGN) end
return live and 1 or 0
