-- Puts a session into mirrors of indexes: it is expected to be in those indexes again. Entries that have expired go.
--
-- KEYS the mirrors (sorted sets: session -> when the entry expires, in ms), all in one slot or on a single server
-- ARGV 1 for how many ms the entry is kept, 2 the session

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, mirror in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', mirror, '-inf', string.format('%.0f', now))
  redis.call('ZADD', mirror, string.format('%.0f', now + ARGV[1]), ARGV[2])
  redis.call('PEXPIRE', mirror, ARGV[1])
end
