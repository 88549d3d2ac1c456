-- Keeps a nonce, and forgets the oldest if there are too many.
--
-- KEYS 1 nonces by expiry (zset)
-- ARGV 1 nonce, 2 TTL in ms, 3 most of them
-- Returns 1.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
