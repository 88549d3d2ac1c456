-- Adds to rows of usage.
--
-- KEYS 1 rows of a tenant and day (hash: the row's name, its numbers with spaces between)
-- ARGV 1 TTL in ms, 2 rows there may be, 3 name of the row for what there is no room for, 4... pairs of a name and the
--      numbers to add
-- Returns 1.

local call = redis.call
known('usage', call('HGET', KEYS[1], 'v'))
local room = tonumber(ARGV[2]) - call('HLEN', KEYS[1])
for i = 4, #ARGV, 2 do
  local name = ARGV[i]
  local known = call('HGET', KEYS[1], name)
  if not known then
    if room > 0 then
      room = room - 1
    else
      name = ARGV[3]
      known = call('HGET', KEYS[1], name)
    end
  end
  local sums = {}
  for n in string.gmatch(known or '', '%S+') do
    sums[#sums + 1] = tonumber(n)
  end
  local at = 0
  for n in string.gmatch(ARGV[i + 1], '%S+') do
    at = at + 1
    sums[at] = string.format('%.0f', (sums[at] or 0) + n)
  end
  call('HSET', KEYS[1], name, table.concat(sums, ' '))
end
call('PEXPIRE', KEYS[1], ARGV[1])
return 1
