-- Sets the state of a blob that is in another one, and its life.
--
-- KEYS 1 blob (hash), 2 those of its tenant by expiry (zset of digests), 3 their sizes and sessions (hash)
-- ARGV 1 digest, 2 the state it must be in, 3 its new state, 4 TTL in ms from now on, 0: as it was
-- Returns 1, or 0 if it is in another state, or gone.

if redis.call('HGET', KEYS[1], 'state') ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[3])
if ARGV[4] == '0' then
  return 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + ARGV[4]), ARGV[1])
for i = 2, 3 do
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[i]))))
end
return 1
