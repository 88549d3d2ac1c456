-- Stores a record of a call that ran without one. Where the answer is in, only what is missing is filled in.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2 and 3 the states in which the answer is in, 4 how many ms the call still has (0: it is final), 5 how many
--      of the following may be filled in, 6... field and value pairs
-- Returns 1.

local state = get('state')
if state == ARGV[2] or state == ARGV[3] then
  for i = 6, 5 + tonumber(ARGV[5]), 2 do
    if get(ARGV[i]) == '' then
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    end
  end
  extend(true)
else
  redis.call('HSET', KEYS[1], unpack(ARGV, 6))
  if ARGV[4] ~= '0' then -- should its caller die, whoever reads the record brings it to its end
    redis.call('HSET', KEYS[1], 'deadline', string.format('%.0f', now + tonumber(ARGV[4])))
  end
  extend(ARGV[4] == '0')
end
return 1
