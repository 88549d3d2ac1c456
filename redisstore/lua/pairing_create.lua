-- Keeps a request to pair, unless there are too many or another one has its code.
--
-- KEYS 1 request (hash), 2 its code (string: the id), 3 all requests by expiry (zset), 4 those of its source (zset),
--      5 those of its network (zset)
-- ARGV 1 id, 2 body, 3 TTL in ms, 4 most of all, 5 most of one source, 6 '1' if it has a code, 7 which part of what is
--      left a network may have (8: an eighth; 0: all)
-- Returns the time in ms of Redis, -1 if there are too many, -2 if the code is taken.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
local count = {}
for i = 3, 5 do
  count[i] = redis.call('ZCOUNT', KEYS[i], '(' .. stamp, '+inf')
end
if count[3] >= tonumber(ARGV[4]) or count[4] >= tonumber(ARGV[5]) or
  ARGV[7] ~= '0' and count[5] * ARGV[7] >= ARGV[4] - count[3] then
  return -1
end
if ARGV[6] == '1' and redis.call('EXISTS', KEYS[2]) == 1 then
  return -2
end
local expires = string.format('%.0f', now + ARGV[3])
redis.call('HSET', KEYS[1], 'body', ARGV[2], 'created', stamp, 'expires', expires)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if ARGV[6] == '1' then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
end
for i = 3, 5 do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', stamp)
  redis.call('ZADD', KEYS[i], expires, ARGV[1])
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', math.max(tonumber(ARGV[3]), redis.call('PTTL', KEYS[i]))))
end
return now
