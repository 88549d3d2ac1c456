-- Keeps an open blob, unless its tenant or its session has too many bytes.
--
-- KEYS 1 blob (hash), 2 those of its tenant by expiry (zset of digests), 3 their sizes and sessions (hash)
-- ARGV 1 body, 2 digest, 3 session, 4 size, 5 most bytes of the tenant, 6 most of a session, 7 most blobs of the tenant,
--      8 most of a session, 9 TTL in ms
-- Returns 1, or 0 if there are too many.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
for _, digest in ipairs(gone) do
  redis.call('ZREM', KEYS[2], digest)
  redis.call('HDEL', KEYS[3], digest)
end
local tenant, session, count, own = tonumber(ARGV[4]), tonumber(ARGV[4]), 0, 0
for _, value in ipairs(redis.call('HVALS', KEYS[3])) do
  local size, of = string.match(value, '^(%d+) (.*)$')
  count, tenant = count + 1, tenant + tonumber(size)
  if of == ARGV[3] then
    session, own = session + tonumber(size), own + 1
  end
end
if count >= tonumber(ARGV[7]) or own >= tonumber(ARGV[8]) or tenant > tonumber(ARGV[5])
    or session > tonumber(ARGV[6]) then
  return 0
end
redis.call('HSET', KEYS[1], 'body', ARGV[1], 'state', 'open')
redis.call('PEXPIRE', KEYS[1], ARGV[9])
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[9]), ARGV[2])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[4] .. ' ' .. ARGV[3])
for i = 2, 3 do
  redis.call('PEXPIRE', KEYS[i], string.format('%.0f', math.max(tonumber(ARGV[9]), redis.call('PTTL', KEYS[i]))))
end
return 1
