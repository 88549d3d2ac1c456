-- Reads a session with its tools at one moment.
--
-- KEYS 1 session hash, 2 tools hash, 3 gone string
-- Returns {the session hash, the tools hash, 1 when the session is remembered as disconnected else 0}; hashes are
-- flat lists.

return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('EXISTS', KEYS[3])}
