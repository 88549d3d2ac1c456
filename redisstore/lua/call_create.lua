-- Writes the record of a new call.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 timeout in ms, 3 first state, 4 rank and 5 text of the event that tells of it, 6... field
-- and value pairs
-- Returns {1, the record}, or {0, the record} when there is one already; hashes are flat lists.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return {0, redis.call('HGETALL', KEYS[1])}
end
redis.call('HSET', KEYS[1], 'deadline', string.format('%.0f', now + ARGV[2]),
  'state', ARGV[3], 'timeline', ARGV[3] .. '=' .. stamp, unpack(ARGV, 6))
log(ARGV[4], ARGV[5])
extend(false)
return {1, redis.call('HGETALL', KEYS[1])}
