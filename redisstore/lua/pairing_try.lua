-- Looks a code up, and counts a wrong one. Once a counter has its limit nothing is looked up.
--
-- KEYS 1 code (string: the id of its request), 2... counters of wrong codes
-- ARGV for each counter: its limit, its window in ms
-- Returns the id; 0 if nobody has the code; or -ms until the first full counter begins anew.

for i = 2, #KEYS do
  if tonumber(redis.call('GET', KEYS[i]) or '0') >= tonumber(ARGV[2 * i - 3]) then
    return -math.max(1, redis.call('PTTL', KEYS[i]))
  end
end
local id = redis.call('GET', KEYS[1])
if id then
  return id
end
for i = 2, #KEYS do
  if redis.call('INCR', KEYS[i]) == 1 then
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i - 2])
  end
end
return 0
