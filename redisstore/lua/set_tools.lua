-- Names the tool set of a session while the claim is current.
--
-- KEYS 1 session hash, 2 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3 generation, 4 the set (empty: no tools)
-- Returns {1, the set before, empty when there was none}; {0} when a newer claim is, or was, current; {-1} when the
-- store lost the session.

local pod, gen, before = unpack(redis.call('HMGET', KEYS[1], 'p', 'g', 's'))
if not pod then
  -- Forgotten, or swept while its pod was paused: the pod will announce it again. Only a newer claim that came and
  -- went makes this one old.
  local gone = redis.call('GET', KEYS[2]) or '0' -- "generation pod"
  return {tonumber(string.match(gone, '^%d+')) > tonumber(ARGV[3]) and 0 or -1}
end
if pod ~= ARGV[2] or gen ~= ARGV[3] then
  return {0}
end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], 's')
else
  redis.call('HSET', KEYS[1], 's', ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1, before or ''}
