-- Names the tool set of a session while the claim is current.
--
-- KEYS and ARGV 1-3 of session_base.lua; KEYS 3 expected string; ARGV 4 the set (empty: no tools), 5 for how many ms
--      what the session offered before is still expected
-- Returns {1, the set before, empty when there was none}, or what session_base.lua returns.

if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], 's')
else
  redis.call('HSET', KEYS[1], 's', ARGV[4])
end
redis.call('PEXPIRE', KEYS[3], ARGV[5], 'LT')
return {1, set or ''}
