-- Adds what is missing to a key. Nothing that is there changes, except that a member may get a higher score and the key
-- a longer life.
--
-- KEYS 1 the key
-- ARGV 1 type: zset or hash, 2 when it expires in ms, 3... pairs of member and score, or of field and value
-- Returns how many were added or raised.

local call = redis.call
local added = 0
for i = 3, #ARGV, 2 do
  if ARGV[1] == 'zset' then
    added = added + call('ZADD', KEYS[1], 'GT', 'CH', ARGV[i + 1], ARGV[i])
  else
    added = added + call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
if call('PEXPIRETIME', KEYS[1]) < tonumber(ARGV[2]) then
  call('PEXPIREAT', KEYS[1], ARGV[2])
end
return added
