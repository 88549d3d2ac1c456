-- What the scripts on the grants of a tenant share. It stands before each of them.
--
-- KEYS 1 grants as JSON by id (hash), 2 ids by binding (hash), 3 'id binding' → expiry in ms (zset)

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = string.format('%.0f', now)

local function drop(member)
  local id, binding = string.match(member, '^(%S+) (%S+)$')
  redis.call('ZREM', KEYS[3], member)
  redis.call('HDEL', KEYS[1], id)
  if redis.call('HGET', KEYS[2], binding) == id then
    redis.call('HDEL', KEYS[2], binding)
  end
end
