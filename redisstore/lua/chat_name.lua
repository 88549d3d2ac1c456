-- Gives the conversation the title a person chose.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 title
-- Returns 1.

redis.call('HSET', KEYS[2], 'title', ARGV[2], 'named', 1)
keep()
return 1
