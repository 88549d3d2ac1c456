-- Appends answers to the list of the pod that waits for them. Nobody may be left to read the list, so it expires.
--
-- KEYS 1 replies (list)
-- ARGV 1 TTL in ms, 2... payloads
-- Returns 1.

redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
