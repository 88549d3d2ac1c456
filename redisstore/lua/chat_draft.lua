-- Replaces the draft.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn, 3 draft (empty: none)
-- Returns 1; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
redis.call('SET', KEYS[3], ARGV[3])
keep()
return 1
