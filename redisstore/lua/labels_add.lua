-- Adds a session to the indexes of labels, or raises its scores there, and extends the indexes' lives. A score never
-- falls: an add that comes late cannot hide a newer claim.
--
-- KEYS the indexes (sorted sets), all in one slot
-- ARGV 1 TTL in ms, 2 score, 3 member
-- Returns 1.

for _, index in ipairs(KEYS) do
  redis.call('ZADD', index, 'GT', ARGV[2], ARGV[3])
  redis.call('PEXPIRE', index, ARGV[1])
end
return 1
