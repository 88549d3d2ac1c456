-- Adds, replaces and removes tools of a session while the claim is current.
--
-- KEYS 1 session hash, 2 tools hash, 3 gone string
-- ARGV 1 session TTL in ms, 2 pod, 3 generation, 4 how many of the following are put, 5... tool name and spec hash
--      pairs to put, then names to drop
-- Returns {1, name and old spec hash of every tool that was dropped or got another hash}; {0} when a newer claim
-- is, or was, current; {-1} when the store lost the session.

local pod, gen = unpack(redis.call('HMGET', KEYS[1], 'pod', 'gen'))
if not pod then
  -- Forgotten, or swept while its pod was paused: the pod will announce it again. Only a newer claim that came and
  -- went makes this one old.
  local gone = redis.call('GET', KEYS[3]) or '0' -- "generation pod"
  return {tonumber(string.match(gone, '^%d+')) > tonumber(ARGV[3]) and 0 or -1}
end
if pod ~= ARGV[2] or gen ~= ARGV[3] then
  return {0}
end
local replaced = {}
local puts = 4 + tonumber(ARGV[4])
for i = puts + 1, #ARGV do
  local old = redis.call('HGET', KEYS[2], ARGV[i])
  if old then
    redis.call('HDEL', KEYS[2], ARGV[i])
    replaced[#replaced + 1] = ARGV[i]
    replaced[#replaced + 1] = old
  end
end
for i = 5, puts, 2 do
  local old = redis.call('HGET', KEYS[2], ARGV[i])
  if old and old ~= ARGV[i + 1] then
    replaced[#replaced + 1] = ARGV[i]
    replaced[#replaced + 1] = old
  end
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {1, replaced}
