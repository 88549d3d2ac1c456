-- Removes a session from indexes unless a newer claim has put it there since, and puts it into mirrors. The removals
-- come first, as in release.lua. A newer claim writes the session hash before it enters an index, so while the hash
-- has none, no score needs a check.
--
-- KEYS the indexes (sorted sets), all in one slot or on a single server; on a single server the session hash and the
--      mirrors follow
-- ARGV 1 the highest score that may be removed, 2 for how many ms an entry of a mirror is kept, 3 the session, 4... the
--      member in each of the indexes

local indexes = #ARGV - 3
local hash = KEYS[indexes + 1]
local claim = hash and redis.call('HGET', hash, 'g')
local compare = not hash or claim and tonumber(claim) > tonumber(ARGV[1])
for i = 1, indexes do
  local score = compare and redis.call('ZSCORE', KEYS[i], ARGV[i + 3])
  if not compare or score and tonumber(score) <= tonumber(ARGV[1]) then
    redis.call('ZREM', KEYS[i], ARGV[i + 3])
  end
end
if KEYS[indexes + 2] then
  mirror(indexes + 2, ARGV[2], ARGV[3])
end
