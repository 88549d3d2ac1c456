-- Reads a session.
--
-- KEYS 1 session hash, 2 gone string
-- Returns {the session hash as a flat list, the gone string, empty when the session is not remembered as disconnected}.

return {redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2]) or ''}
