-- Behind the gate. KEYS: the name. ARGV: the value.
redis.call('SET', KEYS[1], ARGV[1])
return 1
