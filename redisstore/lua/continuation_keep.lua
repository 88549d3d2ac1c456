-- Keeps a continuation. What has expired goes, and the oldest while their holder has too many bytes of them.
--
-- KEYS 1 data by id (hash; ':bytes' counts all), 2 expiry in ms of Redis time by id (zset)
-- ARGV 1 id, 2 data, 3 TTL in ms, 4 bytes one holder may have, 5 bytes each counts beside its data
-- Returns how many bytes are kept now.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function grow(bytes)
  return redis.call('HINCRBY', KEYS[1], ':bytes', string.format('%d', bytes))
end

local function drop(id)
  local bytes = grow(-redis.call('HSTRLEN', KEYS[1], id) - ARGV[5])
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
  return bytes
end

-- What is kept comes first: a full Redis refuses a script at its first write or not at all, and would not refuse a
-- removal.
local before = redis.call('HGET', KEYS[1], ARGV[1])
known('continuation', versionOf(before or ''))
local size = #(before or '')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), ARGV[1])
local bytes = grow(#ARGV[2] - size + (before and 0 or ARGV[5]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000)) do
  bytes = drop(id)
end
while bytes > tonumber(ARGV[4]) do
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 1)
  bytes = drop(oldest[1] == ARGV[1] and oldest[2] or oldest[1])
end
local life = string.format('%.0f', math.max(tonumber(ARGV[3]), redis.call('PTTL', KEYS[1])))
redis.call('PEXPIRE', KEYS[1], life)
redis.call('PEXPIRE', KEYS[2], life)
return bytes
