-- Replaces what is stored of a credential, unless it has changed.
--
-- KEYS 1 credential (hash, see credential_create)
-- ARGV 1 JSON, 2 when it ends in ms (0: never), 3 how long it lives without use in ms, 4 the version that was read
-- Returns 1; 0 if it has another version, -1 if there is none, -2 if it would have ended.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends, idle = tonumber(ARGV[2]), now + ARGV[3]
local version = redis.call('HGET', KEYS[1], 'v')
if not version then
  return -1
end
if version ~= ARGV[4] then
  return 0
end
if ends > 0 and ends <= now then
  return -2
end
redis.call('HSET', KEYS[1], 'd', ARGV[1], 'e', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'v', 1)
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends > 0 and math.min(ends, idle) or idle))
return 1
