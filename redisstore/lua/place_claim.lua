-- Returns the owner of a place. If it has no owner, or a dead one, the asking pod becomes its owner.
--
-- KEYS 1 place (hash)
-- ARGV 1 TTL in ms, 2 pod that asks, 3 what is kept there, 4 fence of the turn that asks (0: none), 5 whether the place
--      belongs to a conversation, 6 epoch whose owner is dead (0: unknown), 7 whether an unknown place may be made,
--      8 whether the pod keeps it there from now on, if it is the owner
--
-- Fields of the hash: 'generation', 'pod', 'epoch', and for each kind of things 'at:<kind>' the epoch in which it was
-- kept last, and 'before:<kind>' the one before that. All numbers are clock readings in microseconds, so that they keep
-- growing when the place was forgotten.
--
-- Returns {1, generation, pod, epoch, before, 1 if it was noted that it is kept there in this epoch}; {0} if the place
-- is unknown and may not be made; {-1} if the conversation was erased after the turn began.

local time = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'generation', 'pod', 'epoch', 'at:' .. ARGV[3], 'before:' .. ARGV[3], 'v')
local generation, pod, epoch, at, before = found[1], found[2], found[3], found[4], found[5]
known('place', found[6])
if not generation and ARGV[7] ~= '1' then
  return {0}
end

-- clock returns a number that is larger than last.
local function clock(last)
  return string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(last or 0) + 1))
end

local fence = tonumber(ARGV[4])
if not generation then
  generation = '0'
  if ARGV[5] == '1' then
    -- The fence is older than every erasure that the turn survives.
    generation = fence > 0 and ARGV[4] or clock()
  end
  redis.call('HSET', KEYS[1], 'generation', generation)
end
if fence > 0 and tonumber(generation) > fence then
  return {-1}
end
if not pod or epoch == ARGV[6] then
  pod, epoch = ARGV[2], clock(epoch)
  redis.call('HSET', KEYS[1], 'pod', pod, 'epoch', epoch)
end
local kept = 1
if at ~= epoch then
  before = at or '0'
  if ARGV[8] == '1' and pod == ARGV[2] then
    redis.call('HSET', KEYS[1], 'at:' .. ARGV[3], epoch, 'before:' .. ARGV[3], before)
  else
    kept = 0
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {1, generation, pod, epoch, before, kept}
