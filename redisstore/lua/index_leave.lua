-- Removes a session from indexes unless a newer claim has put it there since.
--
-- KEYS the indexes (sorted sets), all in one slot or on a single server
-- ARGV 1 the highest score that may be removed, 2... the member in each of the indexes
-- Returns how many were removed.

local removed = 0
for i, index in ipairs(KEYS) do
  local score = redis.call('ZSCORE', index, ARGV[i + 1])
  if score and tonumber(score) <= tonumber(ARGV[1]) then
    removed = removed + redis.call('ZREM', index, ARGV[i + 1])
  end
end
return removed
