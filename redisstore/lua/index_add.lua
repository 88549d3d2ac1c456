-- Adds a member to an index, or raises its score, and extends the index's life. A score never falls: an add that
-- comes late cannot hide a newer claim.
--
-- KEYS 1 index (sorted set)
-- ARGV 1 TTL in ms, 2 score, 3 member
-- Returns 1.

redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
