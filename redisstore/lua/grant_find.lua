-- Finds a grant with one of some bindings.
--
-- KEYS 1 grants, 2 ids by binding, 3 expiries
-- ARGV 1... bindings
-- Returns {grant, expiry}, or {}.

for i = 1, #ARGV do
  local id = redis.call('HGET', KEYS[2], ARGV[i])
  local expires = id and redis.call('ZSCORE', KEYS[3], id .. ' ' .. ARGV[i])
  if expires and tonumber(expires) > now then
    local found = redis.call('HGET', KEYS[1], id)
    if found then
      return {found, expires}
    end
  end
end
return {}
