-- Ends a turn. It needs no memory, so it works in a full Redis too.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn
-- Returns 1; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
redis.call('HDEL', KEYS[2], 'holder', 'until')
keep()
return 1
