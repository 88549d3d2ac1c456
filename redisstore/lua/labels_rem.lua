-- Removes a session from the indexes of labels unless a newer claim has put it there since.
--
-- KEYS the indexes (sorted sets), all in one slot
-- ARGV 1 member, 2 the highest score that may be removed
-- Returns how many were removed.

local removed = 0
for _, index in ipairs(KEYS) do
  local score = redis.call('ZSCORE', index, ARGV[1])
  if score and tonumber(score) <= tonumber(ARGV[2]) then
    removed = removed + redis.call('ZREM', index, ARGV[1])
  end
end
return removed
