-- Replaces the version of a tenant's sessions. The removal comes first, so that it works in a full Redis: sessions that
-- are released or swept change the version, and make room.
--
-- KEYS 1 version (string)
-- ARGV 1 TTL in ms, 2 the new value
-- Returns 1.

redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return 1
