-- Adds lines that were written together to the audit log of a tenant, which is capped and expires.
--
-- KEYS 1 log (stream: each entry has several lines), 2 what it has, about (hash: lines, bytes)
-- ARGV 1 TTL in ms, 2 lines and 3 bytes the log may have, 4... triples: the lines as one text, their number,
--      their bytes
-- Returns 1.
--
-- What goes is taken to be as long as all that is there is on average.

local call = redis.call
local lines, bytes = unpack(call('HMGET', KEYS[2], 'lines', 'bytes'))
lines, bytes = tonumber(lines) or 0, tonumber(bytes) or 0
for i = 4, #ARGV, 3 do
  call('XADD', KEYS[1], '*', 'd', ARGV[i])
  lines, bytes = lines + tonumber(ARGV[i + 1]), bytes + tonumber(ARGV[i + 2])
end
local entries = call('XLEN', KEYS[1])
local keep = math.min(1, tonumber(ARGV[2]) / lines, tonumber(ARGV[3]) / bytes)
if keep < 1 then
  local gone = call('XTRIM', KEYS[1], 'MAXLEN', '~', string.format('%.0f', math.floor(entries * keep)))
  lines, bytes = lines * (1 - gone / entries), bytes * (1 - gone / entries)
end
call('HSET', KEYS[2], 'lines', string.format('%.0f', lines), 'bytes', string.format('%.0f', bytes))
call('PEXPIRE', KEYS[1], ARGV[1])
call('PEXPIRE', KEYS[2], ARGV[1])
return 1
