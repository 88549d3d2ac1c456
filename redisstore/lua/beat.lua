-- Takes or renews the lease of a pod.
--
-- KEYS 1 leases (sorted set: pod, expiry in ms of Redis time)
-- ARGV 1 pod, 2 life of the lease in ms, 3 TTL of the key in ms
-- Returns 1 when the pod still had an unlapsed lease, else 0.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if expiry and tonumber(expiry) > now then
  return 1
end
return 0
