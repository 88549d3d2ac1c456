-- Returns calls that have expired, and the sums of a tenant.
--
-- KEYS 1 to 3 as in queue_base
-- ARGV 1 how many at most, 2 after how many ms one is returned again
-- Returns {calls, bytes, ms since when the call that expires next waits (0: none), then for each its id and head}.

local next = call('ZRANGE', KEYS[2], 0, 0)[1]
local since = next and select(4, fields(call('HGET', KEYS[1], next) or '')) or '0'
local answer = {whole(sum('n')), whole(sum('b')), since == '0' and '0' or whole(now - since)}
for _, id in ipairs(call('ZRANGE', KEYS[2], '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
  local text = call('HGET', KEYS[1], id)
  if text then
    call('ZADD', KEYS[2], whole(now + ARGV[2]), id)
    answer[#answer + 1] = id
    answer[#answer + 1] = string.match(text, '^[^\n]*\n')
  else
    call('ZREM', KEYS[2], id)
  end
end
return answer
