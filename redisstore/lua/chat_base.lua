-- What the scripts on conversations share. It stands before each of them.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms
--
-- Fields of the meta hash: 'fence' of the last turn that was given, 'holder' the fence of the current one (absent once
-- it has ended), 'until' the end of its lease in ms of Redis time, 'title', 'bytes' of all messages, 'appended' the
-- fence of a turn and the digest of what it appended last (absent after a truncation), 'created' when the first message
-- came and 'active' when messages changed last, both in ms, 'named' 1 when the title is a person's, 'owned' 1 when
-- 'user' and 'device' say whose it is.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) -- ms

known('conversation', redis.call('HGET', KEYS[2], 'v'))

-- remaining returns how many ms the lease still has: none, or fewer than none, when it has lapsed.
local function remaining()
  return tonumber(redis.call('HGET', KEYS[2], 'until') or 0) - now
end

-- held reports whether the turn of this fence is the current one, though its lease may have lapsed.
local function held(fence)
  return redis.call('HGET', KEYS[2], 'holder') == fence
end

-- lease gives the current turn that many ms from now.
local function lease(ms)
  redis.call('HSET', KEYS[2], 'until', string.format('%.0f', now + ms))
end

-- size returns how many bytes the messages of a list have, from the first of them on.
local function size(messages, first)
  local bytes = 0
  for i = first, #messages do
    bytes = bytes + #messages[i]
  end
  return bytes
end

-- grow adds to the bytes of all messages, and returns them.
local function grow(bytes)
  return redis.call('HINCRBY', KEYS[2], 'bytes', string.format('%d', bytes))
end

-- changed notes that messages changed.
local function changed()
  local at = string.format('%.0f', now)
  redis.call('HSETNX', KEYS[2], 'created', at)
  redis.call('HSET', KEYS[2], 'active', at)
end

-- keep gives all that is known of the conversation one more TTL, but not less than the turn has: a lease must not be
-- forgotten while it runs.
local function keep()
  local life = string.format('%.0f', math.max(tonumber(ARGV[1]), remaining()))
  for i = 1, 4 do
    redis.call('PEXPIRE', KEYS[i], life)
  end
end

