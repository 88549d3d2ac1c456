-- Applies an event to a record.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 session the record must be of (empty: any), 3 the proofs of the sender, each between
--      spaces (empty: not checked), 4 1 if the event is an answer, or the states, between spaces, in which one
--      that is there is now known to be late, 5 rank and 6 text of what tells of the move, 7 how many of the following
--      belong to the table of moves, 8 the pod that must have claimed the call (empty: any), 9... that table, then
--      field and value pairs to set with the move
-- Returns {1 if the record moved else 0, the record with its watchers as a flat list}; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 or (ARGV[2] ~= '' and get('session') ~= ARGV[2]) then
  return {}
end
local proof = get('proof')
if ARGV[3] ~= '' and proof ~= '' and not string.find(ARGV[3], ' ' .. proof .. ' ', 1, true) then
  return {}
end
if ARGV[8] ~= '' and get('owner') ~= ARGV[8] then
  return {0, redis.call('HGETALL', KEYS[1])}
end
local rows = 8 + tonumber(ARGV[7])
local moved, final = move(get('state'), 9, rows)
if not moved then
  if string.find(ARGV[4], ' ' .. get('state') .. ' ', 1, true) then
    redis.call('HSET', KEYS[1], 'late', '1')
  end
  return {0, redis.call('HGETALL', KEYS[1])}
end
if #ARGV > rows then
  redis.call('HSET', KEYS[1], unpack(ARGV, rows + 1))
end
if ARGV[4] == '1' and get('kept') ~= '' then -- who waited for the call would have kept the answer
  redis.call('HSET', KEYS[1], 'late', '1')
end
log(ARGV[5], ARGV[6])
extend(final)
local record = redis.call('HGETALL', KEYS[1])
if final then -- the watchers go out with this answer, and only with it
  for i = 1, #record, 2 do
    if string.sub(record[i], 1, 2) == 'w:' then
      redis.call('HDEL', KEYS[1], record[i])
    end
  end
end
return {1, record}
