-- Appends to the log of changes of credentials, which is capped and expires.
--
-- KEYS 1 log (stream), 2 the number of the last change (string)
-- ARGV 1 TTL in ms, 2 changes the log may have, 3 tenant, 4 kind, 5 id, 6 whether it was revoked (1 or 0),
--      7 the device of a revoked credential, may be empty, 8 the signature of the fleet, may be empty,
--      9 the user of that device, may be empty, 10 the signature with the user, may be empty
-- Returns {the id of the entry, its number}.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local number = redis.call('INCR', KEYS[2])
local entry = {'q', number, 't', ARGV[3], 'k', ARGV[4], 'i', ARGV[5], 'r', ARGV[6], 'd', ARGV[7], 's', ARGV[8]}
for i, field in ipairs({'u', 'w'}) do
  if ARGV[8 + i] ~= '' then
    entry[#entry + 1] = field
    entry[#entry + 1] = ARGV[8 + i]
  end
end
local id = redis.call('XADD', KEYS[1], '*', unpack(entry))
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', now - ARGV[1]))
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2])
for i = 1, 2 do
  redis.call('PEXPIRE', KEYS[i], ARGV[1])
end
return {id, number}
