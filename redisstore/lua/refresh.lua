-- Extends the life of a session while the claim is current, and checks that the store still has all of it: a
-- failover may have lost the last writes, and a write that failed was left to the next announcement.
--
-- KEYS 1 session hash
-- ARGV 1 session TTL in ms, 2 pod, 3 generation, 4 the one after it, 5 digest of the attributes, 6 the tool set (empty:
--      no tools), 7 the pulse (empty: the one that is there stays)
-- Returns 1 when all is there, 0 when another claim is current, -1 when something is missing.

local pod, gen, sum, set = unpack(redis.call('HMGET', KEYS[1], 'p', 'g', 'h', 's'))
if not pod then
  return -1
end
if pod ~= ARGV[2] then
  return 0
end
if gen == ARGV[4] then
  return -1 -- our own restore whose answer was lost: to be repeated
end
if gen ~= ARGV[3] then
  return 0
end
-- The life comes first: a full Redis refuses a script at its first write or not at all, and never this one.
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[1], 'e', ARGV[7])
end
if sum ~= ARGV[5] or (set or '') ~= ARGV[6] then
  return -1
end
return 1
