-- What the scripts on records of calls share. It stands before each of them.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms
--
-- A table of moves has five arguments to a row: the state a record is in, the state it gets, '1' if its answer is then
-- a late one, whether it is then known to have reached a device (empty: nothing new), '1' if the new state is final.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) -- ms
local stamp = string.format('%s%06d', time[1], time[2]) -- microseconds

local function get(field)
  return redis.call('HGET', KEYS[1], field) or ''
end

known('call', redis.call('HGET', KEYS[1], 'v'))

-- extend gives the record and its events one more retention time, counted from the deadline while the call may still
-- run: one with a long timeout would be forgotten before it ends.
local function extend(final)
  local life, deadline = tonumber(ARGV[1]), tonumber(get('deadline'))
  if not final and deadline and deadline > now then
    life = life + deadline - now
  end
  life = string.format('%.0f', life)
  redis.call('PEXPIRE', KEYS[1], life)
  redis.call('PEXPIRE', KEYS[2], life)
end

-- log adds to the events, unless the log has an event of a higher rank already. There may be several events of an odd
-- rank, and none of a negative one: a call that waits in a queue takes no log, for which Redis reserves 4 KiB.
local cap = 2048 -- events kept, roughly
local last
local function log(rank, text)
  if not last then
    local entry = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
    last = entry and tonumber(entry[2][4] or -1) or -1
  end
  rank = tonumber(rank)
  if rank < last or (rank == last and rank % 2 == 0) then
    return
  end
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', cap, '*', 'd', text, 'r', rank)
  last = rank
end

-- steps returns the timeline, to which a step is about to be added: 1,600 bytes are about the 64 steps that are kept.
-- The two last ones of a call that returns to its queue again and again make room.
local function steps()
  local all = get('timeline')
  return #all > 1600 and string.match(all, '^(.*) %S+ %S+$') or all
end

-- move applies the table of moves in the arguments from first to last. It returns whether the record moved, and
-- whether its state is final now.
local function move(state, first, last)
  for i = first, last, 5 do
    if ARGV[i] == state then
      redis.call('HSET', KEYS[1], 'state', ARGV[i + 1], 'late', ARGV[i + 2],
        'timeline', steps() .. ' ' .. ARGV[i + 1] .. '=' .. stamp)
      if ARGV[i + 3] ~= '' then
        redis.call('HSET', KEYS[1], 'dispatched', ARGV[i + 3])
      end
      return true, ARGV[i + 4] == '1'
    end
  end
  return false, false
end

