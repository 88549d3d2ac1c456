-- Notes that messages of a conversation changed, in a turn.
--
-- KEYS 1 index (sorted set), 2 version (string), 3 running (sorted set)
-- ARGV 1 TTL in ms, 2 session, 3 fence of the turn, 4 new version
-- Returns 1.

redis.call('ZADD', KEYS[1], 'GT', string.format('%.0f', now), ARGV[2])
redis.call('ZADD', KEYS[3], 'GT', ARGV[3], ARGV[2])
redis.call('SET', KEYS[2], ARGV[4])
prune()
for i = 1, 3 do
  redis.call('PEXPIRE', KEYS[i], ARGV[1])
end
return 1
