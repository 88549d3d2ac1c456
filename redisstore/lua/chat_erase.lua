-- Forgets a conversation, and with it the turn that may be under way. It needs no memory, so it works in a full Redis
-- too.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms
-- Returns how many of the keys there were.

return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
