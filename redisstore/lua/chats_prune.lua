-- Removes from the lists what has had its time.
--
-- KEYS 1 index (sorted set), 2 version (string), 3 running (sorted set)
-- ARGV 1 TTL in ms
-- Returns 1.

prune()
return 1
