-- Stores a credential that is new.
--
-- KEYS 1 credential (hash: d JSON, c when it was made and e when it ends in ms of Redis time, v version, u last use)
-- ARGV 1 JSON, 2 when it ends in ms (0: never), 3 how long it lives without use in ms
-- Returns when it was made in ms; 0 if it has ended, -1 if there is one with its digest.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends, idle = tonumber(ARGV[2]), now + ARGV[3]
if redis.call('EXISTS', KEYS[1]) == 1 then
  return -1
end
if ends > 0 and ends <= now then
  return 0
end
redis.call('HSET', KEYS[1], 'd', ARGV[1], 'c', string.format('%.0f', now), 'e', ARGV[2], 'v', 1)
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends > 0 and math.min(ends, idle) or idle))
return now
