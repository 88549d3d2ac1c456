-- Appends to a stream, which is capped and expires. It is capped once, with the last entry: that costs as much as an entry.
--
-- KEYS 1 stream, 2 (optional) a key the stream must not expire before
-- ARGV 1 TTL in ms, 2 cap, 3... entries, at least one
-- Returns 1.

local call, stream = redis.call, KEYS[1]
for i = 3, #ARGV - 1 do
  call('XADD', stream, '*', 'd', ARGV[i])
end
call('XADD', stream, 'MAXLEN', '~', ARGV[2], '*', 'd', ARGV[#ARGV])
local life = tonumber(ARGV[1])
if KEYS[2] then
  life = math.max(life, call('PTTL', KEYS[2]))
end
call('PEXPIRE', stream, string.format('%.0f', life))
return 1
