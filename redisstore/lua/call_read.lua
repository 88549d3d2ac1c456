-- Reads a record. One whose deadline is past is brought to its end first. Watchers stay for the answer, which may
-- still come.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 grace after the deadline in ms, 3 pod to be woken when the record becomes final (empty:
--      none), 4... table of moves: how each state ends that is not final
-- Returns the record as a flat list, {} when there is none.

local state, deadline = get('state'), tonumber(get('deadline'))
if state == '' then
  return {}
end
if deadline and deadline + ARGV[2] <= now and move(state, 4, #ARGV) then
  extend(true)
  return redis.call('HGETALL', KEYS[1])
end
if ARGV[3] ~= '' then
  for i = 4, #ARGV, 5 do
    if ARGV[i] == state then
      redis.call('HSET', KEYS[1], 'w:' .. ARGV[3], '1')
    end
  end
end
return redis.call('HGETALL', KEYS[1])
