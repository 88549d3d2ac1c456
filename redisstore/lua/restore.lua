-- Writes a session its pod still holds the socket of, with all its tools, after the store lost all or part of it.
--
-- KEYS 1 session hash, 2 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3 generation the pod knows, 4 the one after it, 5 connected_at in ms (empty:
--      now), 6... field and value pairs of the attributes, the tool set and the pulse
-- Returns {generation, connected_at in ms, the previous session hash}, or {} when a newer claim has, or had, the
-- session.
--
-- What the store still has of this very claim keeps its generation. What it lost comes back under the next one, so
-- that removals still under way for the lost claim cannot touch it; and because the next one follows from the old
-- one, a restore whose answer was lost may be repeated, and of two pods restoring after the store was emptied the
-- one with the newer claim wins.

-- The gone string is "generation pod".
local gone = redis.call('GET', KEYS[2]) or '0'
known('session', versionOf(gone))
local goneGen = tonumber(string.match(gone, '^%d+'))
local before = redis.call('HGETALL', KEYS[1])
local pod, gen, version = unpack(redis.call('HMGET', KEYS[1], 'p', 'g', 'v'))
known('session', version)
local new = ARGV[4]
if pod == ARGV[2] and (gen == ARGV[3] or gen == ARGV[4]) then
  new = gen
elseif tonumber(gen or 0) > tonumber(ARGV[3]) or goneGen > tonumber(ARGV[3]) then
  return {}
end

local at = ARGV[5]
if at == '' then
  local time = redis.call('TIME')
  at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'p', ARGV[2], 'g', new, 't', at, unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {new, at, before}
