-- Reads continuations, up to a number of bytes.
--
-- KEYS 1 data by id (hash), 2 expiry in ms of Redis time by id (zset)
-- ARGV 1 bytes all may have together, 2... ids
-- Returns {id, data, id, data…} of those that are kept.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local remaining, found = tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  local expiry = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if expiry and tonumber(expiry) > now then
    remaining = remaining - redis.call('HSTRLEN', KEYS[1], ARGV[i])
    if remaining < 0 then
      break
    end
    found[#found + 1] = ARGV[i]
    found[#found + 1] = redis.call('HGET', KEYS[1], ARGV[i])
  end
end
return found
