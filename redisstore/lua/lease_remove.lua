-- Removes the lease of a pod that is still lapsed: one that came back meanwhile keeps it.
--
-- KEYS 1 leases (sorted set: pod, expiry in ms of Redis time)
-- ARGV 1 pod
-- Returns 1 when the pod has no lease any more, 0 when it lives.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
if expiry and tonumber(expiry) > now then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
