-- Removes a conversation from the lists.
--
-- KEYS 1 index (sorted set), 2 version (string), 3 running (sorted set)
-- ARGV 1 TTL in ms, 2 session, 3 new version
-- Returns 1.

redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[1])
return 1
