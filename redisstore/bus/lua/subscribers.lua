-- Counts the subscribers of a sharded channel. Because it names a key it is carried out by the master of the channel's
-- slot alone; a replica redirects it.
--
-- KEYS 1 channel
-- Returns how many.

return redis.call('PUBSUB', 'SHARDNUMSUB', KEYS[1])[2]
