-- Makes a place last longer, and writes one again that was lost.
--
-- KEYS 1 place (hash)
-- ARGV 1 TTL in ms, 2 pod, 3 generation, 4 epoch
-- Returns 1, or 0 if the place is another's, or of another generation.

local found = redis.call('HMGET', KEYS[1], 'generation', 'pod', 'epoch', 'v')
known('place', found[4])
if not found[1] then
  redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'pod', ARGV[2], 'epoch', ARGV[4])
elseif found[1] ~= ARGV[3] or found[2] ~= ARGV[2] or found[3] ~= ARGV[4] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
