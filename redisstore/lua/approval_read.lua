-- Reads an approval.
--
-- KEYS 1 approval
-- ARGV 1 '1': with its arguments, 2 '1': with the request that is kept with it
-- Returns it as whole() has it, and then the request; {} when there is none.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {}
end
local all = whole(ARGV[1] == '1')
all[12] = ARGV[2] == '1' and redis.call('HGET', KEYS[1], 'request') or ''
return all
