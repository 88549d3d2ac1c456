-- Makes a pod the owner of a session under a new, higher generation. The tools of the previous claim go.
--
-- KEYS 1 session hash, 2 tools hash, 3 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3... field and value pairs of the attributes
-- Returns {generation, connected_at in ms, the previous session hash, the previous tools hash, the pod that released the
-- session before}; hashes are flat lists, empty when there was none.

-- The gone string is "generation pod".
local gone = redis.call('GET', KEYS[3]) or '0'
local goneGen = tonumber(string.match(gone, '^%d+'))

local time = redis.call('TIME')
local before = redis.call('HGETALL', KEYS[1])
local tools = redis.call('HGETALL', KEYS[2])

-- Generations are clock readings in microseconds, so that they keep growing when Redis lost the session; the
-- stored ones guard against a clock that went back. Both fit a double, and '%.0f' prints them in full.
local gen = time[1] * 1000000 + time[2]
gen = math.max(gen, (redis.call('HGET', KEYS[1], 'gen') or 0) + 1, goneGen + 1)
gen = string.format('%.0f', gen)
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], 'pod', ARGV[2], 'gen', gen, 'at', at, unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {gen, at, before, tools, string.match(gone, '^%d+ (.*)$') or ''}
