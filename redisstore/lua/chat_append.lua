-- Adds messages, unless they are what the turn added last, and forgets the draft. The oldest messages go while there
-- are too many, or too many bytes of them.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn, 3 cap, 4 bytes all messages may have, 5 digest of the messages, 6... messages
-- Returns how many messages there are now; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
local last = ARGV[2] .. ' ' .. ARGV[5]
if #ARGV > 5 and redis.call('HGET', KEYS[2], 'appended') == last then
  redis.call('DEL', KEYS[3])
  keep()
  return redis.call('LLEN', KEYS[1])
end
-- The messages come first: a full Redis refuses a script at its first write or not at all, and would not refuse a
-- removal. Lua unpacks a few thousand values at most.
for i = 6, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local count, bytes = redis.call('LLEN', KEYS[1]), grow(size(ARGV, 6))
while count > tonumber(ARGV[3]) or (count > 1 and bytes > tonumber(ARGV[4])) do
  bytes = grow(-#redis.call('LPOP', KEYS[1]))
  count = count - 1
end
redis.call('HSET', KEYS[2], 'appended', last)
if #ARGV > 5 then
  changed()
end
redis.call('DEL', KEYS[3])
keep()
return count
