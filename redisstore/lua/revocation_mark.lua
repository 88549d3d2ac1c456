-- Remembers that something of a tenant was revoked. What is too old is forgotten.
--
-- KEYS 1 when each was revoked, in ms of Redis time (zset of ids)
-- ARGV 1 TTL in ms, 2 how many may be remembered, 3 id
-- Returns 0; if there is no room, how many ms it takes until the oldest is forgotten.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[1]))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) and not redis.call('ZSCORE', KEYS[1], ARGV[3]) then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return math.max(1, oldest[2] + ARGV[1] - now)
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 0
