-- Gives a place up. It needs no memory, so it works in a full Redis too.
--
-- KEYS 1 place (hash)
-- ARGV 1 pod, 2 epoch
-- Returns 1, or 0 if the place is another's.

local found = redis.call('HMGET', KEYS[1], 'pod', 'epoch', 'v')
known('place', found[3])
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], 'pod')
return 1
