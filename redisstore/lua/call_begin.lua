-- Starts the time of a held call.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 timeout in ms, 3 the pod that begins it, 4 the state it then is in, 5 rank and 6 text of
--      the event that tells of it, 7... table of moves: how it gets into that state
-- Returns {1 if it was held else 0, the record as a flat list}; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local state = get('state')
if get('held') ~= '1' or tonumber(get('deadline')) <= now or (state ~= ARGV[4] and not move(state, 7, #ARGV)) then
  return {0, redis.call('HGETALL', KEYS[1])}
end
log(ARGV[5], ARGV[6])
redis.call('HSET', KEYS[1], 'held', '', 'pod', ARGV[3], 'deadline', string.format('%.0f', now + ARGV[2]))
extend(false)
return {1, redis.call('HGETALL', KEYS[1])}
