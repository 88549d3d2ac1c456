-- Names the conversation, unless a person has.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn, 3 title
-- Returns 1; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
if not redis.call('HGET', KEYS[2], 'named') then
  redis.call('HSET', KEYS[2], 'title', ARGV[3])
end
keep()
return 1
