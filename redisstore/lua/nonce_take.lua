-- Removes a nonce.
--
-- KEYS 1 nonces by expiry (zset)
-- ARGV 1 nonce
-- Returns 1 if it was there and had not expired.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expires = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return (expires and tonumber(expires) > now) and 1 or 0
