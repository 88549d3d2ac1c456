-- Takes credentials off the lists of their tenant.
--
-- KEYS as in credentials_add
-- ARGV triples: member of KEYS 1, its member of KEYS 2, its device (both empty: it has none)
-- Returns how many were on the list of all.

local removed = 0
for i = 1, #ARGV, 3 do
  removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('ZREM', KEYS[3], ARGV[i])
  if ARGV[i + 2] ~= '' then
    redis.call('ZREM', KEYS[2], ARGV[i + 1])
    if redis.call('HGET', KEYS[4], ARGV[i + 2]) == ARGV[i] then
      redis.call('HDEL', KEYS[4], ARGV[i + 2])
    end
  end
end
return removed
