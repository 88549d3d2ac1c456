-- Lists grants, those that expire first before others.
--
-- KEYS 1 grants, 2 ids by binding, 3 expiries
-- ARGV 1 how many at most
-- Returns {grant, expiry, grant, expiry…}.

local all = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. text, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #found, 2 do
  local grant = redis.call('HGET', KEYS[1], string.match(found[i], '^%S+'))
  if grant then
    all[#all + 1] = grant
    all[#all + 1] = found[i + 1]
  end
end
return all
