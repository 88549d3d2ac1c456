-- Adds to the sums of a tenant's day, and takes a call if no sum has reached its limit of calls.
--
-- KEYS 1 sums of the tenant (hash: day → numbers with spaces between), 2 those of its identities today (hash:
--      identity → numbers; '' → the day)
-- ARGV 1 TTL of the sums in ms, 2 TTL of those of identities, 3 days kept, 4 identities there may be, 5 identity for
--      which there is no room, 6 '1': take a call, then for each charge its identity ('': the tenant), its numbers, and
--      its limit of calls (0: none)
-- Returns the day, how many ms are left of it, '0', or '1' if the call was not taken, and the numbers of each charge.

local call = redis.call
local time = call('TIME')
local day = string.format('%.0f', math.floor(time[1] / 86400))
local left = string.format('%.0f', 86400000 - (time[1] % 86400) * 1000 - math.floor(time[2] / 1000))

local function numbers(text)
  local list = {}
  for n in string.gmatch(text or '0 0 0 0', '%S+') do
    list[#list + 1] = tonumber(n)
  end
  return list
end

-- beginDay drops what the identities spent on another day.
local begun
local function beginDay()
  if begun then
    return
  end
  begun = true
  if call('HGET', KEYS[2], '') ~= day then
    call('DEL', KEYS[2])
    call('HSET', KEYS[2], '', day)
    call('PEXPIRE', KEYS[2], ARGV[2])
  end
end

-- Sums by key and field, as read and as changed since.
local known, fresh, new = {}, false, 0

local read
read = function(key, field)
  local name = key .. ' ' .. field
  if not known[name] then
    local text = call('HGET', key, field)
    if not text and key == KEYS[1] then
      fresh = true
    elseif not text and field ~= ARGV[5] then
      if call('HLEN', key) + new > tonumber(ARGV[4]) then -- one of the fields is the day
        return read(key, ARGV[5])
      end
      new = new + 1
    end
    known[name] = {key, field, numbers(text)}
  end
  return known[name]
end

local sums, full = {}, '0'
for i = 7, #ARGV, 3 do
  local sum
  if ARGV[i] == '' then
    sum = read(KEYS[1], day)
  else
    beginDay()
    sum = read(KEYS[2], ARGV[i])
  end
  local values = sum[3]
  for at, n in ipairs(numbers(ARGV[i + 1])) do
    values[at] = math.min(math.max((values[at] or 0) + n, 0), 9007199254740992)
  end
  local limit = tonumber(ARGV[i + 2])
  if ARGV[6] == '1' and limit > 0 and values[1] >= limit then
    full = '1'
  end
  sums[#sums + 1] = sum
end
local answer = {day, left, full}
for _, sum in ipairs(sums) do
  if ARGV[6] == '1' and full == '0' then
    sum[3][1] = sum[3][1] + 1
  end
  local texts = {}
  for at, n in ipairs(sum[3]) do
    texts[at] = string.format('%.0f', n)
  end
  answer[#answer + 1] = table.concat(texts, ' ')
  call('HSET', sum[1], sum[2], answer[#answer])
end
if fresh then
  for _, field in ipairs(call('HKEYS', KEYS[1])) do
    if tonumber(field) <= day - ARGV[3] then
      call('HDEL', KEYS[1], field)
    end
  end
  call('PEXPIRE', KEYS[1], ARGV[1])
end
return answer
