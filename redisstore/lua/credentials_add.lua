-- Puts a credential on the lists of its tenant, or renews its place there. What has ended leaves them.
--
-- KEYS 1 credentials (zset, all of one score: "id digest device"), 2 those of devices (the same: "device id digest"),
--      3 when each leaves, in ms of Redis time (zset of the members of KEYS 1), 4 paired devices (hash: device to member
--      of KEYS 1)
-- ARGV 1 member, 2 its member of KEYS 2 (empty: it has no device), 3 when it ends in ms (0: never), 4 how long it lives
--      without use in ms, 5 how many credentials the tenant may have, 6 the device that is paired by it (empty: none),
--      7 '1' if it is new
-- Returns 1, 0 if the tenant has as many as it may have, -1 if it is new and its device is paired by another one.

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
    if redis.call('HGET', KEYS[4], device) == member then
      redis.call('HDEL', KEYS[4], device)
    end
  end
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
if ARGV[6] ~= '' then
  local other = redis.call('HGET', KEYS[4], ARGV[6])
  local leaves = other and other ~= ARGV[1] and redis.call('ZSCORE', KEYS[3], other)
  local taken = leaves and tonumber(leaves) > now
  if taken and ARGV[7] == '1' then
    return -1
  end
  if not taken then
    redis.call('HSET', KEYS[4], ARGV[6], ARGV[1])
  end
end
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[3], string.format('%.0f', ends > 0 and math.min(ends, idle) or idle), ARGV[1])
if ARGV[2] ~= '' then
  redis.call('ZADD', KEYS[2], 0, ARGV[2])
end
for i = 1, 4 do
  redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', idle))
end
return 1
