-- Takes bytes off a budget, which fills up again over time.
--
-- KEYS 1 budget (hash: bytes that remain, as left, and when that was in ms)
-- ARGV 1 bytes to take, 2 bytes of a full budget, 3 ms in which an empty one fills up, 4 overdraw: 1 also takes bytes
--      that are not there, until as many are owed as a full budget has
-- Returns 0 when they were taken, else in how many ms they will be there.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local wanted, full, life = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local remaining, at = unpack(redis.call('HMGET', KEYS[1], 'left', 'at'))
remaining = math.min(full, (tonumber(remaining) or full) + math.max(0, now - (tonumber(at) or now)) * full / life)
if remaining < wanted and ARGV[4] ~= '1' then
  return math.ceil((wanted - remaining) * life / full)
end
local left = string.format('%.3f', math.max(remaining - wanted, -full))
redis.call('HSET', KEYS[1], 'left', left, 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], 2 * life)
return 0
