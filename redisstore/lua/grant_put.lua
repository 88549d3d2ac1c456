-- Stores a grant, in place of one with the same binding.
--
-- KEYS 1 grants, 2 ids by binding, 3 expiries
-- ARGV 1 id, 2 binding, 3 grant, 4 life in ms, 5 how many there may be
-- Returns {now, expiry}, or {} when there are too many.

local former = redis.call('HGET', KEYS[2], ARGV[2])
if not former and redis.call('ZCOUNT', KEYS[3], '(' .. text, '+inf') >= tonumber(ARGV[5]) then
  return {}
end
local expires = string.format('%.0f', now + ARGV[4])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[3], expires, ARGV[1] .. ' ' .. ARGV[2])
if former and former ~= ARGV[1] then
  drop(former .. ' ' .. ARGV[2])
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text, 'LIMIT', 0, 1000)) do
  drop(member)
end
for i = 1, 3 do
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[i]))))
end
return {text, expires}
