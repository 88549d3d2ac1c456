-- Decides an approval that is pending, or notes the first of two persons that allow it.
--
-- KEYS 1 approval, 2 those that wait, 3 those of the requester that wait, 4 deferred ones that are not settled
-- ARGV 1 id, 2 state, 3 by, 4 scope, 5 how long it is kept from now on in ms, 6 the person that decides, 7 how that
--      was proved, 8 the person whose earlier vote does not count any more
-- Returns {1 if this decision counts else 0, …} with the approval as whole() has it; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local decided = 0
if verdict()[1] == 'pending' then
  local by = ARGV[3]
  local vote = redis.call('HMGET', KEYS[1], 'two', 'first', 'firstby')
  if vote[1] == '1' and ARGV[2] == 'allowed' then
    if not vote[2] or vote[2] == ARGV[8] then
      redis.call('HSET', KEYS[1], 'first', ARGV[6], 'firstby', by, 'voter', ARGV[7])
      return {1, whole(true)}
    end
    if vote[2] == ARGV[6] then
      return {0, whole(true)}
    end
    by = vote[3] .. ', ' .. by
  end
  redis.call('HSET', KEYS[1], 'state', ARGV[2], 'by', by, 'at', text, 'scope', ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  if redis.call('ZSCORE', KEYS[4], ARGV[1]) then
    redis.call('ZADD', KEYS[4], text, ARGV[1])
  end
  decided = 1
end
return {decided, whole(true)}
