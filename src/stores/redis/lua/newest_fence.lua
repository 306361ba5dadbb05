-- KEYS: the gate. Answers the newest fence, or nil.
return redis.call('GET', KEYS[1])
