-- Replaces a value that is still the expected one, or gone.
--
-- KEYS 1 string
-- ARGV 1 expected value, 2 new value, 3 TTL in ms
-- Returns nothing when it was replaced, else the value that is there.

local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then
  return value
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
