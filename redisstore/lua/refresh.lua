-- Extends the life of a session while the claim is current, and checks that the store still has all of it: a
-- failover may have lost the last writes, and a write that failed was left to the next announcement.
--
-- KEYS 1 session hash, 2 tools hash
-- ARGV 1 session TTL in ms, 2 pod, 3 generation, 4 the one after it, 5 digest of the attributes, 6 how many tools,
--      7 sum of the tools' numbers
-- Returns 1 when all is there, 0 when another claim is current, -1 when something is missing.

local pod, gen, sum = unpack(redis.call('HMGET', KEYS[1], 'pod', 'gen', 'sum'))
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
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])

-- A tool's number is the first 40 bits of its spec hash: sums of thousands of them are exact in a double and do
-- not depend on the order of the hash's fields.
local hashes = redis.call('HVALS', KEYS[2])
local total = 0
for _, hash in ipairs(hashes) do
  total = total + tonumber(string.sub(hash, 1, 10), 16)
end
if sum ~= ARGV[5] or #hashes ~= tonumber(ARGV[6]) or total ~= tonumber(ARGV[7]) then
  return -1
end
return 1
