-- KEYS[1]: the gate. ARGV[1]: the fence. What stands behind this text runs if the fence passes; for it, KEYS and ARGV begin with what
-- stands behind these two.
do
  local gate, given = table.remove(KEYS, 1), table.remove(ARGV, 1)
  if not gate or #gate == 0 or #gate > 518 then
    return redis.error_reply('SYNCGUARD_RESOURCE the first key is not the gate of a resource')
  end
  if not given or #given > 15 or not string.find(given, '^%d+$') or tonumber(given) < 1 or tonumber(given) > 900000000000000 then
    return redis.error_reply('SYNCGUARD_FENCE the fence is not a number from 1 to 900000000000000')
  end
  local newest = redis.call('GET', gate)
  if newest and (#newest > 15 or not string.find(newest, '^%d+$')) then
    return redis.error_reply('SYNCGUARD_GATE the key of the gate holds something else')
  end
  if newest and tonumber(newest) > tonumber(given) then
    return redis.error_reply('SYNCGUARD_STALE ' .. newest .. ' is the fence of a newer holder')
  end
  if not newest or tonumber(newest) < tonumber(given) then
    redis.call('SET', gate, string.format('%015.0f', tonumber(given)))
  end
end
