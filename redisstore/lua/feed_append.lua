-- Adds lines to the feed of a tenant, which is capped and expires, and to the index of the calls it tells the end of.
--
-- KEYS 1 feed (stream), 2 how many bytes its lines have, about (string), 3 index (hash: mark of a call, id of its
-- line),
--      4 the index before it
-- ARGV 1 TTL in ms, 2 lines and 3 bytes the feed may have, 4 bytes of the lines added, also of those added before this
--      script, 5... pairs of a line and the mark of its call (empty: none); there may be no pairs
-- Returns 1.
--
-- The bytes are about right: lines that go are taken to be as long as all lines are on average. An index is begun anew
-- when it has as many calls as the feed may have lines, so two of them have every call of the feed.

local call = redis.call
for i = 5, #ARGV, 2 do
  local id = call('XADD', KEYS[1], '*', 'd', ARGV[i])
  if ARGV[i + 1] ~= '' then
    call('HSET', KEYS[3], ARGV[i + 1], id)
  end
end
local cap, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local lines, bytes = call('XLEN', KEYS[1]), call('INCRBY', KEYS[2], ARGV[4])
if bytes > room then
  cap = math.min(cap, math.floor(lines * room / bytes))
end
local gone = call('XTRIM', KEYS[1], 'MAXLEN', '~', string.format('%.0f', cap))
if gone > 0 then
  call('SET', KEYS[2], string.format('%.0f', bytes / lines * (lines - gone)))
end
if call('HLEN', KEYS[3]) >= tonumber(ARGV[2]) then
  call('UNLINK', KEYS[4]) -- freed beside: RENAME alone would free thousands of fields while everybody waits (5 ms)
  call('RENAME', KEYS[3], KEYS[4])
end
for i = 1, 4 do
  call('PEXPIRE', KEYS[i], ARGV[1])
end
return 1
