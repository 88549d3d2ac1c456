-- Reads the leases.
--
-- KEYS 1 leases (sorted set: pod, expiry in ms of Redis time)
-- ARGV 1 'live' or 'lapsed'
-- Returns the pods whose lease is live, or has lapsed.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if ARGV[1] == 'live' then
  return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
end
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
