-- Keeps the oldest messages and forgets the draft.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn, 3 how many to keep
-- Returns 1; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
local removed = size(redis.call('LRANGE', KEYS[1], ARGV[3], -1), 1)
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('LTRIM', KEYS[1], 0, ARGV[3] - 1)
end
grow(-removed)
redis.call('HDEL', KEYS[2], 'appended')
changed()
redis.call('DEL', KEYS[3])
keep()
return 1
