-- Continues a copy of a stream with newer entries of the stream, some of them. The copy replaces the stream when it has
-- all.
--
-- KEYS 1 stream, 2 copy, 3 what the stream has, about (hash: lines, bytes)
-- ARGV 1 when they expire in ms, 2 lines and 3 bytes that the copy has more than the stream
-- Returns 1 when the copy has replaced the stream, else 0: to be called again.

local call = redis.call
local last = call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if not last then
  return 1
end
local newer = call('XRANGE', KEYS[1], '(' .. last[1], '+', 'COUNT', 500)
for _, entry in ipairs(newer) do
  call('XADD', KEYS[2], entry[1], unpack(entry[2]))
end
if #newer == 500 then
  return 0
end
local expires = string.format('%.0f', math.max(tonumber(ARGV[1]), call('PEXPIRETIME', KEYS[1])))
call('RENAME', KEYS[2], KEYS[1])
call('HINCRBY', KEYS[3], 'lines', ARGV[2])
call('HINCRBY', KEYS[3], 'bytes', ARGV[3])
call('PEXPIREAT', KEYS[1], expires)
call('PEXPIREAT', KEYS[3], expires)
return 1
