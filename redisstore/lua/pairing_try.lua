-- Looks a code up, and counts a wrong one. Once a counter is full nothing is looked up (registry.FullGuesses).
--
-- KEYS 1 code (string: the id of its request; empty: it was used), 2... counters of wrong codes
-- ARGV for each counter: its limit, its window in ms, its share of what is left of the next one (0: none)
-- Returns the id, empty if the code was used; 0 if no request has the code; or -ms until no counter is full any more.

local wait, left
for i = #KEYS, 2, -1 do
  local most, share = tonumber(ARGV[3 * i - 5]), tonumber(ARGV[3 * i - 3])
  if left and share > 0 then
    most = math.min(most, math.ceil(left / share))
  end
  left = math.max(0, most - (redis.call('GET', KEYS[i]) or 0))
  if left == 0 then
    wait = math.max(wait or 1, redis.call('PTTL', KEYS[i])) -- negative without a key: nothing is left of the next one
  end
end
if wait then
  return -wait
end
local id = redis.call('GET', KEYS[1])
if id then
  return id
end
for i = 2, #KEYS do
  if redis.call('INCR', KEYS[i]) == 1 then
    redis.call('PEXPIRE', KEYS[i], ARGV[3 * i - 4])
  end
end
return 0
