-- KEYS: a name in the slot of the locks. ARGV: where the scan goes on, the pattern of names, how many to examine, tolerance ms,
-- what the user's key begins with, what the names of indexes and of fences begin with, the server that the scan began on, or nothing.
-- Answers {where to go on, this server, value...} with the values of live locks. A pure read.
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
if not server then
  -- A user without the right to INFO: where a function lies in memory differs from one server process to another.
  server = redis.sha1hex(tostring(redis.call) .. tostring(redis.sha1hex))
end
-- A cursor means nothing to another server.
if ARGV[8] ~= '' and ARGV[8] ~= server then
  return redis.error_reply('SYNCGUARD_CURSOR the listing began on another server')
end
local found = {ARGV[1], server}
local function begins(text, with) return string.sub(text, 1, #with) == with end
local left, bytes = tonumber(ARGV[3]), 0
-- In small steps, because a step cannot be taken in part: the client takes no reply of more than a megabyte or of 2048 parts.
repeat
  local step = math.min(left, 100)
  local page = redis.call('SCAN', found[1], 'MATCH', ARGV[2], 'COUNT', step)
  found[1], left = page[1], left - step
  for _, name in ipairs(page[2]) do
    if not begins(name, ARGV[7]) and not (begins(name, ARGV[6]) and #name == #ARGV[6] + 22) then
      -- The name may be another program's.
      local value = redis.pcall('GET', name)
      if type(value) == 'string' then
        local lock, live = read(value, ARGV[4])
        if live and type(lock.key) == 'string' and begins(lock.key, ARGV[5]) then
          found[#found + 1], bytes = value, bytes + #value
        end
      end
    end
  end
until left <= 0 or found[1] == '0' or bytes > 262144 or #found > 1000
return found
