-- Removes a claim, if it is the current one, and remembers for a while that the session was connected.
--
-- KEYS 1 session hash, 2 tools hash, 3 gone string
-- ARGV 1 TTL of the memory in ms, 2 pod, 3 generation
-- Returns {1, the session hash, the tools hash} as flat lists, or {0} when the claim was not current.

local before = redis.call('HGETALL', KEYS[1])
local pod, gen = unpack(redis.call('HMGET', KEYS[1], 'pod', 'gen'))
if pod ~= ARGV[2] or gen ~= ARGV[3] then
  return {0}
end
local tools = redis.call('HGETALL', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SET', KEYS[3], gen .. ' ' .. pod, 'PX', ARGV[1])
return {1, before, tools}
