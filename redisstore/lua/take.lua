-- Charges sliding windows, all of them or none.
--
-- KEYS the windows (lists: the times of the last charges in µs, newest first)
-- ARGV for each window its limit and its period in ms
-- Returns 0 when they were charged, else in how many µs the window that takes longest has room, and which that is.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local wait, full = 0, 0
for i, key in ipairs(KEYS) do
  local leaving = call('LINDEX', key, ARGV[2 * i - 1] - 1)
  if leaving then
    local period = ARGV[2 * i] * 1000
    local left = math.min(leaving + period - now, period) -- a clock may have gone back
    if left > wait then
      wait, full = left, i
    end
  end
end
if wait > 0 then
  return {wait, full}
end
local stamp = string.format('%.0f', now)
for i, key in ipairs(KEYS) do
  local limit = tonumber(ARGV[2 * i - 1])
  if call('LPUSH', key, stamp) > limit then
    call('LTRIM', key, 0, limit - 1)
  end
  call('PEXPIRE', key, ARGV[2 * i])
end
return 0
