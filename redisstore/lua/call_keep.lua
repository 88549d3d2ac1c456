-- Stores a record of a call that ran without one, as it is now.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 rank and 3 text of the event that tells of its state, 4 how many ms the call still has
--      (0: it is final), 5 its timeline, 6 how many of the following say what becomes of a record that is there, 7...
--      its state and one of replace, fill, late and answer, then, 8 how many of the following may be filled in, 9...
--      field and value pairs (8 and 9 count from the end of the pairs before)
-- Returns 1.

local first = 7 + tonumber(ARGV[6]) -- the number of what may be filled in
local state, how = get('state'), 'replace'
for i = 7, first - 1, 2 do
  if ARGV[i] == state then
    how = ARGV[i + 1]
  end
end
local before = get('timeline')
local step = string.match(before, '(%S+)$')

local function fill()
  for i = first + 1, first + tonumber(ARGV[first]), 2 do
    if get(ARGV[i]) == '' then
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    end
  end
end

if how == 'fill' or how == 'late' then
  fill()
else
  redis.call('HSET', KEYS[1], 'kept', '1', unpack(ARGV, first + 1))
  if ARGV[4] ~= '0' then -- should its caller die, whoever reads the record brings it to its end
    redis.call('HSET', KEYS[1], 'deadline', string.format('%.0f', now + tonumber(ARGV[4])))
  end
end
if how == 'late' then
  redis.call('HSET', KEYS[1], 'late', '1', 'error', '', 'timeline', ARGV[5] .. ' ' .. step)
elseif how == 'answer' then
  local head, tail = string.match(ARGV[5], '^(.-)%s*(%S+)$')
  redis.call('HSET', KEYS[1], 'late', '1', 'timeline', head .. ' ' .. step .. ' ' .. tail)
end
log(ARGV[2], ARGV[3])
extend(ARGV[4] == '0' or how == 'fill' or how == 'late')
return 1
