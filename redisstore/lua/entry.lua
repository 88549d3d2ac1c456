-- Reads a session.
--
-- KEYS 1 session hash, 2 gone string
-- Returns {the session hash as a flat list, 1 when the session is remembered as disconnected else 0}.

return {redis.call('HGETALL', KEYS[1]), redis.call('EXISTS', KEYS[2])}
