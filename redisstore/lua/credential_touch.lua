-- Notes that a credential is used, and renews its life.
--
-- KEYS 1 credential (hash, see credential_create)
-- ARGV 1 how long it lives without use in ms
-- Returns {its JSON, when it ends in ms (0: never)} if it was not used for a day, and nothing else.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'd', 'e', 'u', 'c')
if not found[1] then
  return {}
end
local ends, idle = tonumber(found[2]), now + ARGV[1]
redis.call('HSET', KEYS[1], 'u', string.format('%.0f', now))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', ends > 0 and math.min(ends, idle) or idle))
if now - tonumber(found[3] or found[4]) < 86400000 then
  return {}
end
return {found[1], found[2]}
