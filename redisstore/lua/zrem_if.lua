-- Removes members from an index unless a newer claim has put them there since.
--
-- KEYS 1 index (sorted set)
-- ARGV pairs of member and the highest score that may be removed
-- Returns how many were removed.

local removed = 0
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) <= tonumber(ARGV[i + 1]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return removed
