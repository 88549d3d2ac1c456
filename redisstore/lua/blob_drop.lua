-- Forgets a blob.
--
-- KEYS 1 blob (hash), 2 those of its tenant by expiry (zset of digests), 3 their sizes and sessions (hash)
-- ARGV 1 digest
-- Returns 1.

redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return 1
