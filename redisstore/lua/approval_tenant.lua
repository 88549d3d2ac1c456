-- Notes that a tenant has deferred approvals.
--
-- KEYS 1 tenants (zset: tenant → until when they may have some, in ms)
-- ARGV 1 tenant, 2 for how many ms

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(known, now + ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))))
return 1
