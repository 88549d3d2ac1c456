-- Starts the time of a held call.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 timeout in ms, 3 the pod that begins it, 4 the state it must be in
-- Returns {1 if it was held else 0, the record as a flat list}; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
if get('held') ~= '1' or get('state') ~= ARGV[4] or tonumber(get('deadline')) <= now then
  return {0, redis.call('HGETALL', KEYS[1])}
end
redis.call('HSET', KEYS[1], 'held', '', 'pod', ARGV[3], 'deadline', string.format('%.0f', now + ARGV[2]))
extend(false)
return {1, redis.call('HGETALL', KEYS[1])}
