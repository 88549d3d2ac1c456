-- Lists members of an index whose time has come, or is still ahead.
--
-- KEYS 1 index (zset: member → time in ms)
-- ARGV 1 '1': those whose time has come, else the others; 2 how many at most, 3 how many of the earliest are skipped
-- Returns the members, the earliest first.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if ARGV[1] == '1' then
  return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', ARGV[3], ARGV[2])
end
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'LIMIT', ARGV[3], ARGV[2])
