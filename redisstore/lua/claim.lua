-- Makes a pod the owner of a session under a new, higher generation. It starts without tools.
--
-- KEYS 1 session hash, 2 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3... field and value pairs of the attributes
-- Returns {generation, connected_at in ms, the previous session hash, the pod that released the session before}; the
-- hash is a flat list, empty when there was none.

-- The gone string is "generation pod".
local gone = redis.call('GET', KEYS[2]) or '0'
local goneGen = tonumber(string.match(gone, '^%d+'))

local time = redis.call('TIME')
local before = redis.call('HGETALL', KEYS[1])

-- Generations are clock readings in microseconds, so that they keep growing when Redis lost the session; the
-- stored ones guard against a clock that went back. Both fit a double, and '%.0f' prints them in full.
local gen = time[1] * 1000000 + time[2]
gen = math.max(gen, (redis.call('HGET', KEYS[1], 'g') or 0) + 1, goneGen + 1)
gen = string.format('%.0f', gen)
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'p', ARGV[2], 'g', gen, 't', at, unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {gen, at, before, string.match(gone, '^%d+ (.*)$') or ''}
