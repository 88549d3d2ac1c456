-- Removes a claim, if it is the current one, and remembers for a while that the session was connected. A full Redis
-- refuses a script at its first write or not at all, and never a removal: so the removal comes first, and makes room.
--
-- KEYS 1 session hash, 2 gone string, 3 expected string
-- ARGV 1 TTL of the memory in ms, 2 pod, 3 generation, 4 for how many ms the device is expected to connect again (0: it
--      is not)
-- Returns {1, the session hash as a flat list, what expect returns}, or {0} when the claim was not current.

local before = redis.call('HGETALL', KEYS[1])
local was = fieldsOf(before)
known('session', was.v)
if was.p ~= ARGV[2] or was.g ~= ARGV[3] then
  return {0}
end
redis.call('DEL', KEYS[1])
local expected = {}
if ARGV[4] == '0' and not versionOf(redis.call('GET', KEYS[3]) or '') then
  redis.call('DEL', KEYS[3])
elseif ARGV[4] ~= '0' then
  expected = expect(KEYS[3], was.s, was.d, was.l, ARGV[4])
end
local gone = was.g .. ' ' .. was.p
for i, field in ipairs({'a', 'd', 'k', 'r', 'c', 't', 'b', 'u', 'o'}) do
  if i <= 7 or was.u or was.o then
    gone = gone .. '\n' .. (was[field] or '')
  end
end
redis.call('SET', KEYS[2], gone, 'PX', ARGV[1])
return {1, before, expected}
