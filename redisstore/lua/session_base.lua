-- Stands before scripts that change a session, which go on only while the claim is current.
--
-- KEYS 1 session hash, 2 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3 generation
-- Returns {0} when a newer claim is, or was, current; {-1} when the store lost the session.

local pod, gen, at, set, pulse, version = unpack(redis.call('HMGET', KEYS[1], 'p', 'g', 't', 's', 'e', 'v'))
known('session', version)
if not pod then
  -- Redis lost the session, or it was swept while its pod was paused: the pod will announce it again. But if the last
  -- claim that ended is a newer one, this claim is out of date.
  local gone = redis.call('GET', KEYS[2]) or '0' -- "generation pod"
  known('session', versionOf(gone))
  return {tonumber(string.match(gone, '^%d+')) > tonumber(ARGV[3]) and 0 or -1}
end
if pod ~= ARGV[2] or gen ~= ARGV[3] then
  return {0}
end
