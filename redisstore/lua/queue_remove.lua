-- Removes a call from a queue.
--
-- KEYS as in queue_base
-- ARGV 1 call
-- Returns 1 if it was there, else 0.

local head = call('HGET', KEYS[1], ARGV[1])
if not head then
  return 0
end
local device, identity, size = fields(head)
call('HDEL', KEYS[1], ARGV[1])
call('ZREM', KEYS[2], ARGV[1])
call('ZREM', KEYS[4], ARGV[1])
count(device, identity, -1, tonumber(size))
return 1
