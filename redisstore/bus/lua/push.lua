-- Appends answers to the list of the pod that waits for them. The pod may be gone, so the list expires.
--
-- KEYS 1 replies (list)
-- ARGV 1 TTL in ms, 2... payloads
-- Returns 1.

redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
