-- Charges the sliding windows of calls, for each call all of them or none, one call after the other.
--
-- A charge is made first, and only a window that is longer than its limit then is looked back into: most are not.
--
-- KEYS the windows of all calls (lists: the times of the last charges in µs, newest first), all in one slot
-- ARGV for each call the number of its windows, and for each of these its limit and its period in ms
-- Returns for each call two numbers: 0 if its windows were charged, otherwise in how many µs the window has room that
--      takes longest; and which one that is, from 0 on.

local call = redis.call
local time = call('TIME')
local now = time[1] .. string.format('%06d', time[2]) -- as text: Redis would write a number with 17 digits each time
local answer, key, arg = {}, 0, 1
while arg <= #ARGV do
  local windows = tonumber(ARGV[arg])
  local wait, full, long = 0, 0, false
  for i = 1, windows do
    local limit = ARGV[arg + 2 * i - 1]
    if call('LPUSH', KEYS[key + i], now) > tonumber(limit) then
      long = true
      local period = ARGV[arg + 2 * i] * 1000
      local left = math.min(call('LINDEX', KEYS[key + i], limit) + period - now, period) -- a clock may have gone back
      if left > wait then
        wait, full = left, i - 1
      end
    end
  end
  for i = 1, windows do
    if wait > 0 then
      call('LPOP', KEYS[key + i]) -- nobody has seen the charge
    else
      if long then
        call('LTRIM', KEYS[key + i], 0, ARGV[arg + 2 * i - 1] - 1)
      end
      call('PEXPIRE', KEYS[key + i], ARGV[arg + 2 * i])
    end
  end
  answer[#answer + 1], answer[#answer + 2] = wait, full
  key, arg = key + windows, arg + 2 * windows + 1
end
return answer
