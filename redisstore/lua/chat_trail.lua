-- Adds an entry to the trail, of which the oldest beyond the limit are forgotten.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 entry, 3 limit, at least 1
-- Returns the trail.

redis.call('RPUSH', KEYS[4], ARGV[2])
redis.call('LTRIM', KEYS[4], -tonumber(ARGV[3]), -1)
keep()
return redis.call('LRANGE', KEYS[4], 0, -1)
