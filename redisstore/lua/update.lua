-- Replaces the attributes of a session while the claim is current.
--
-- KEYS and ARGV 1-3 of session_base.lua; ARGV 4... field and value pairs of the attributes
-- Returns {1, the previous session hash}, or what session_base.lua returns.

local before = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'p', pod, 'g', gen, 't', at, unpack(ARGV, 4))
if set then
  redis.call('HSET', KEYS[1], 's', set)
end
if pulse then
  redis.call('HSET', KEYS[1], 'e', pulse)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1, before}
