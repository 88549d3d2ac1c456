-- Removes a value that is still the expected one.
--
-- KEYS 1 string
-- ARGV 1 expected value
-- Returns how many keys were removed.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
