-- What the scripts on the lists of conversations of a tenant share. It stands before each of them.
--
-- KEYS 1 index (sorted set: session, when its messages changed last in ms), 2 version (string),
--      3 running (sorted set: session, fence of the turn that wrote last)
-- ARGV 1 TTL of a conversation in ms

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) -- ms

-- oldest is when what is listed changed last, at the least: what is older has had its time.
local oldest = string.format('%.0f', now - tonumber(ARGV[1]))

-- prune removes what has had its time, some of it: a script must not take long.
local function prune()
  for i, bound in pairs({[1] = oldest, [3] = oldest .. '000'}) do
    local old = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', bound, 'LIMIT', 0, 500)
    if #old > 0 then
      redis.call('ZREM', KEYS[i], unpack(old))
    end
  end
end

