-- Adds members to an index, or raises their scores, and extends the index's life. A score never falls: an add that
-- comes late cannot hide a newer claim.
--
-- KEYS 1 index (sorted set)
-- ARGV 1 TTL in ms, 2 score, 3... members
-- Returns 1.

for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
