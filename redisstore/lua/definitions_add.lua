-- Notes since when definitions of tools are offered: the seniority of the most senior device that does. Of each tool
-- the definitions that are offered longest are kept.
--
-- KEYS the definitions of a tool each (sorted set: hash of the specification, since when in ms), all in one slot
-- ARGV 1 TTL in ms, 2 how many definitions of a tool are kept, then for each key 3... hash and since when
-- Returns 1.

redis.call('PEXPIRE', KEYS[1], ARGV[1]) -- first, as in refresh.lua, which this script runs along with
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, 'LT', ARGV[2 * i + 2], ARGV[2 * i + 1])
  redis.call('ZREMRANGEBYRANK', key, ARGV[2], -1)
  redis.call('PEXPIRE', key, ARGV[1])
end
return 1
