-- Returns the first call of a queue.
--
-- KEYS as in queue_base
-- Returns {call, its head and request}; {} if the queue is empty.

while true do
  local id = call('ZRANGE', KEYS[4], 0, 0)[1]
  if not id then
    return {}
  end
  local text = call('HGET', KEYS[1], id)
  if text then
    return {id, text}
  end
  call('ZREM', KEYS[4], id)
end
