-- Notes that a session is about to leave its pod for another, and reads which pods it has left.
--
-- KEYS 1 session hash, 2 gone string, 3 formers (sorted set: pod, when it was left in ms)
-- ARGV 1 the next pod, 2 for how many ms a pod is remembered, 3 how many are
-- Returns the pods, the last one first. The next one may be among them.

local pod = redis.call('HGET', KEYS[1], 'p') or string.match(redis.call('GET', KEYS[2]) or '', '^%d+ (%S+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if pod and pod ~= ARGV[1] then
  redis.call('ZADD', KEYS[3], string.format('%.0f', now), pod)
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
return redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', string.format('(%.0f', now - ARGV[2]))
