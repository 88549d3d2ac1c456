-- Stores a pending approval, unless too many wait.
--
-- KEYS 1 approval, 2 those that wait (zset: id → expiry), 3 those of the requester that wait (the same), 4 deferred ones
--      that are not settled (zset: id → when they are due)
-- ARGV 1 id, 2 life in ms, 3 how long it is kept after that in ms, 4 how many may wait, 5 how many of one requester,
--      6 '1' if it is deferred, 7 what is asked, 8 arguments, 9 request, 10 '1' if two persons must allow it
-- Returns {now, expiry}, or {'tenant'} or {'requester'} if that one has too many.

if redis.call('ZCOUNT', KEYS[3], '(' .. text, '+inf') >= tonumber(ARGV[5]) then
  return {'requester'}
end
if redis.call('ZCOUNT', KEYS[2], '(' .. text, '+inf') >= tonumber(ARGV[4]) then
  return {'tenant'}
end
local expires = string.format('%.0f', now + ARGV[2])
local life = ARGV[2] + ARGV[3]
redis.call('HSET', KEYS[1], 'd', ARGV[7], 'args', ARGV[8], 'request', ARGV[9], 'state', 'pending',
  'created', text, 'expires', expires, 'two', ARGV[10])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
redis.call('ZADD', KEYS[2], expires, ARGV[1])
redis.call('ZADD', KEYS[3], expires, ARGV[1])
live(KEYS[2], tonumber(ARGV[2]))
live(KEYS[3], tonumber(ARGV[2]))
if ARGV[6] == '1' then
  redis.call('ZADD', KEYS[4], expires, ARGV[1])
  live(KEYS[4], life)
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', text)
return {text, expires}
