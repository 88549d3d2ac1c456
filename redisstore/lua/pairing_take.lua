-- Removes a request to pair that was approved.
--
-- KEYS 1 request (hash), 2 all requests by expiry (zset), 3 those of its source (zset), 4 those of its network (zset)
-- ARGV 1 id, 2 the decision as it was read
-- Returns 1 to one of all that ask, else 0.

if redis.call('HGET', KEYS[1], 'decision') ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
return 1
