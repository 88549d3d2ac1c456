-- Reads one page of an index in the order of score, then member.
--
-- KEYS 1 index (sorted set)
-- ARGV 1 'up' or 'down', 2 score and 3 member of the place to start behind (an empty member: the beginning),
--      4 how many
-- Returns a flat list of members and scores.

-- after reports whether a sorts behind b. Lua's own comparison follows the locale, Redis compares bytes.
local function after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x > y
    end
  end
  return #a > #b
end

local up, limit = ARGV[1] == 'up', tonumber(ARGV[4])
local place -- how many members sort before the page (up) or are not behind its start (down)
if ARGV[3] == '' then
  place = up and 0 or redis.call('ZCARD', KEYS[1])
else
  -- Among the members of the cursor's score, which are sorted, find the first that is behind it.
  local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[2])
  local high = low + redis.call('ZCOUNT', KEYS[1], ARGV[2], ARGV[2])
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', KEYS[1], middle, middle)[1]
    if after(member, ARGV[3]) or (not up and member == ARGV[3]) then
      high = middle
    else
      low = middle + 1
    end
  end
  place = low
end

if up then
  return redis.call('ZRANGE', KEYS[1], place, place + limit - 1, 'WITHSCORES')
end
if place == 0 then
  return {}
end
local size = redis.call('ZCARD', KEYS[1])
return redis.call('ZREVRANGE', KEYS[1], size - place, size - place + limit - 1, 'WITHSCORES')
