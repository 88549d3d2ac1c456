-- Adds a call to the end of a queue.
--
-- KEYS as in queue_base
-- ARGV 1 call, 2 device, 3 identity, 4 life in ms, 5 life of the keys in ms, 6 request, then limits of calls and of
--      bytes: 7 and 8 of the device, 9 and 10 of the identity, 11 and 12 of the tenant, 13 and 14 of the identity
--      at the device
-- Returns {place, when it expires in ms} as texts, or {'0', the bound that is reached}.

local id, device, identity, size = ARGV[1], ARGV[2], ARGV[3], #ARGV[6]
local head = call('HGET', KEYS[1], id)
if not head then
  local function full(n, bytes, first)
    return n + 1 > tonumber(ARGV[first]) or bytes + size > tonumber(ARGV[first + 1])
  end
  local waiting, bytes = call('ZCARD', KEYS[4]), sum('db ' .. device)
  if full(waiting, bytes, 7) then
    return {'0', 'device'}
  end
  -- The calls of an identity at a device have no sum: a pod of an older version would not keep it. They are read only
  -- if they may exceed the share.
  if identity ~= '-' and full(waiting, bytes, 13) and full(sum('in ' .. identity), sum('ib ' .. identity), 13) then
    local n, own, ids = 0, 0, call('ZRANGE', KEYS[4], 0, -1)
    for i = 1, #ids, 100 do
      for _, text in ipairs(call('HMGET', KEYS[1], unpack(ids, i, math.min(i + 99, #ids)))) do
        local _, of, length = fields(text or '')
        if of == identity then
          n, own = n + 1, own + tonumber(length)
        end
      end
      if n > 0 and full(n, own, 13) then
        return {'0', 'share'}
      end
    end
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
