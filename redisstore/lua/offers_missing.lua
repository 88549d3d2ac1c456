-- Counts what the offers index lacks of a tool set. One number is the answer: a pod asks for all its sets all the time.
--
-- KEYS 1 offers index
-- ARGV the members that the set has in it, at most 1000
-- Returns how many are not there.

local missing = 0
for _, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(ARGV))) do
  if not score then
    missing = missing + 1
  end
end
return missing
