-- Takes or renews the lease of a pod. If the lease must be there and is not, Redis was emptied: all pods find the mark
-- of that as soon as they can find the lease.
--
-- KEYS 1 leases (sorted set: pod, expiry in ms of Redis time), 2 mark (string), both in one slot
-- ARGV 1 pod, 2 life of the lease and of the mark in ms, 3 TTL of the leases in ms, 4 1 if the lease must be there,
--      else empty
-- Returns 1 when the pod still had an unlapsed lease, else 0.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1]) -- a full Redis refuses a script at its first write, but never a removal
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if expiry and tonumber(expiry) > now then
  return 1
end
if ARGV[4] == '1' then
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
end
return 0
