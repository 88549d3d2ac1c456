-- Adds a call to the end of a queue.
--
-- KEYS as in queue_base
-- ARGV 1 call, 2 device, 3 identity, 4 life in ms, 5 life of the keys in ms, 6 request, then limits of calls and of
--      bytes: 7 and 8 of the device, 9 and 10 of the identity, 11 and 12 of the tenant
-- Returns {place, when it expires in ms} as texts, or {'0', the bound that is reached}.

local id, device, identity, size = ARGV[1], ARGV[2], ARGV[3], #ARGV[6]
local head = call('HGET', KEYS[1], id)
if not head then
  local function full(n, bytes, first)
    return n + 1 > tonumber(ARGV[first]) or bytes + size > tonumber(ARGV[first + 1])
  end
  if full(call('ZCARD', KEYS[4]), sum('db ' .. device), 7) then
    return {'0', 'device'}
  end
  if identity ~= '-' and full(sum('in ' .. identity), sum('ib ' .. identity), 9) then
    return {'0', 'identity'}
  end
  if full(sum('n'), sum('b'), 11) then
    return {'0', 'tenant'}
  end
  local expires = whole(now + ARGV[4])
  head = table.concat({device, identity, whole(size), whole(now), expires}, ' ') .. '\n'
  call('HSET', KEYS[1], id, head .. ARGV[6])
  call('ZADD', KEYS[2], expires, id)
  call('ZADD', KEYS[4], whole(call('HINCRBY', KEYS[3], 'last', 1)), id)
  count(device, identity, 1, size)
  for _, key in ipairs(KEYS) do
    if call('PTTL', key) < tonumber(ARGV[5]) then
      call('PEXPIRE', key, ARGV[5])
    end
  end
end
local _, _, _, _, expires = fields(head)
return {whole((call('ZRANK', KEYS[4], id) or 0) + 1), expires}
