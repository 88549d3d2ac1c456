-- Begins a turn, unless the lease of another still runs. The draft stays: the turn before may not have ended.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list), 5 place (hash)
-- ARGV 1 TTL in ms, 2 lease in ms
-- Returns {1, fence of the turn}, or {0, how many ms the other one still has}.

if remaining() > 0 then
  return {0, remaining()}
end
-- Fences are clock readings in microseconds, so that they keep growing when the conversation was forgotten; the stored
-- one guards against a clock that went back, and so does the generation, which a later turn must not be older than.
-- All fit a double, and '%.0f' prints them in full.
local fence = math.max(time[1] * 1000000 + time[2], (redis.call('HGET', KEYS[2], 'fence') or 0) + 1,
  (redis.call('HGET', KEYS[5], 'generation') or 0) + 1)
fence = string.format('%.0f', fence)
redis.call('HSET', KEYS[2], 'fence', fence, 'holder', fence)
lease(ARGV[2])
keep()
return {1, fence}
