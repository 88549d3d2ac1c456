-- Removes a grant.
--
-- KEYS 1 grants, 2 ids by binding, 3 expiries
-- ARGV 1 id, 2 binding
-- Returns its expiry if it was there and had not expired, else ''.

local expires = redis.call('ZSCORE', KEYS[3], ARGV[1] .. ' ' .. ARGV[2])
drop(ARGV[1] .. ' ' .. ARGV[2])
if expires and tonumber(expires) > now then
  return expires
end
return ''
