-- Replaces the attributes of a session while the claim is current.
--
-- KEYS 1 session hash, 2 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3 generation, 4... field and value pairs of the attributes
-- Returns {1, the previous session hash}; {0} when a newer claim is, or was, current; {-1} when the store
-- lost the session.

local pod, gen = unpack(redis.call('HMGET', KEYS[1], 'p', 'g'))
if not pod then
  -- Forgotten, or swept while its pod was paused: the pod will announce it again. Only a newer claim that came and
  -- went makes this one old.
  local gone = redis.call('GET', KEYS[2]) or '0' -- "generation pod"
  return {tonumber(string.match(gone, '^%d+')) > tonumber(ARGV[3]) and 0 or -1}
end
if pod ~= ARGV[2] or gen ~= ARGV[3] then
  return {0}
end
local before = redis.call('HGETALL', KEYS[1])
local at, set = unpack(redis.call('HMGET', KEYS[1], 't', 's'))
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'p', pod, 'g', gen, 't', at, unpack(ARGV, 4))
if set then
  redis.call('HSET', KEYS[1], 's', set)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1, before}
