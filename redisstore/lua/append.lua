-- Appends to a stream, which is capped and expires.
--
-- KEYS 1 stream, 2 (optional) a key the stream must not expire before
-- ARGV 1 TTL in ms, 2 cap, 3... entries
-- Returns 1.

for i = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'd', ARGV[i])
end
local life = tonumber(ARGV[1])
if KEYS[2] then
  life = math.max(life, redis.call('PTTL', KEYS[2]))
end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
return 1
