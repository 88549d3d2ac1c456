-- Decides an approval that is pending.
--
-- KEYS 1 approval, 2 those that wait, 3 those of the requester that wait, 4 deferred ones that are not settled
-- ARGV 1 id, 2 state, 3 by, 4 scope, 5 how long it is kept from now on in ms
-- Returns {1 if this decision counts else 0, …} with the approval as whole() has it; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local decided = 0
if verdict()[1] == 'pending' then
  redis.call('HSET', KEYS[1], 'state', ARGV[2], 'by', ARGV[3], 'at', text, 'scope', ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  if redis.call('ZSCORE', KEYS[4], ARGV[1]) then
    redis.call('ZADD', KEYS[4], text, ARGV[1])
  end
  decided = 1
end
return {decided, whole(true)}
