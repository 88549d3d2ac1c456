-- Puts a credential on the lists of its tenant, or renews its place there. What has ended leaves them.
--
-- KEYS 1 credentials (zset, all of one score: "id digest device"), 2 those of devices (the same: "device id digest"),
--      3 when each leaves, in ms of Redis time (zset of the members of KEYS 1)
-- ARGV 1 member, 2 its member of KEYS 2 (empty: it has no device), 3 when it ends in ms (0: never), 4 how long it lives
--      without use in ms, 5 how many credentials the tenant may have
-- Returns 1, or 0 if the tenant has as many as it may have.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends, idle = tonumber(ARGV[3]), now + ARGV[4]
local gone = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)
for _, member in ipairs(gone) do
  redis.call('ZREM', KEYS[1], member)
  redis.call('ZREM', KEYS[3], member)
  local id, digest, device = string.match(member, '^(%S+) (%S+) (%S+)$')
  if device then
    redis.call('ZREM', KEYS[2], device .. ' ' .. id .. ' ' .. digest)
  end
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%.0f', ends > 0 and math.min(ends, idle) or idle), ARGV[1])
if ARGV[2] ~= '' then
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
end
for i = 1, 3 do
  redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', idle))
end
return 1
