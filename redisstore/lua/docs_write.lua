-- Checks conditions on a space, then changes it. The first condition that is not met ends it before any change.
--
-- KEYS the document (hash: f form, v revision, d data, c creation in ms) or index (zset: member → time in ms) of each
--      step
-- ARGV 1 form and 2 revision of documents that are written, then four for each step, conditions first: its name, two
--      values, and its number. A life is its ms, '0': as before, or 'ms@end' with the time in ms of its latest end
-- Returns {time in ms, 0 or the number of the condition that is not met}.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sum = 0

local function text(ms)
  return string.format('%.0f', ms)
end

-- ends returns when a life ends: 'ms', or 'ms@end'.
local function ends(life)
  local ms, latest = string.match(life, '^(%d+)@?(%d*)$')
  return math.min(now + ms, tonumber(latest) or math.huge)
end

local steps = {
  expect = function(key, revision)
    return (call('HGET', key, 'v') or '') == revision
  end,
  has = function(key, member)
    return tonumber(call('ZSCORE', key, member) or 0) > now
  end,
  count = function(key, weight, except)
    local ahead = call('ZCOUNT', key, '(' .. text(now), '+inf')
    if except ~= '' and tonumber(call('ZSCORE', key, except) or 0) > now then
      ahead = ahead - 1
    end
    sum = sum + weight * ahead
  end,
  weigh = function(key, _, except)
    for _, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. text(now), '+inf')) do
      if member ~= except then
        sum = sum + string.match(member, '^%d+')
      end
    end
  end,
  most = function(_, limit)
    local total = sum
    sum = 0
    return total <= tonumber(limit)
  end,
  put = function(key, data, life)
    if life == '0' and call('EXISTS', key) == 0 then
      return
    end
    call('HSET', key, 'f', ARGV[1], 'v', ARGV[2], 'd', data)
    call('HSETNX', key, 'c', text(now))
    if life ~= '0' then
      call('PEXPIREAT', key, text(ends(life)))
    end
  end,
  extend = function(key, life)
    call('PEXPIREAT', key, text(ends(life)))
  end,
  delete = function(key)
    call('DEL', key)
  end,
  join = function(key, member, lives)
    local life, stay = string.match(lives, '(%S+) (%d+)')
    local at = ends(life)
    call('ZADD', key, 'GT', text(at), member)
    call('ZREMRANGEBYSCORE', key, '-inf', text(now - stay))
    call('PEXPIREAT', key, text(math.max(at + stay, call('PEXPIRETIME', key))))
  end,
  leave = function(key, member)
    call('ZREM', key, member)
  end,
  keep = function(key, n)
    call('ZREMRANGEBYRANK', key, 0, -1 - n)
  end,
}

local changes = {put = true, extend = true, delete = true}
for i = 1, #KEYS do -- before anything is changed
  if changes[ARGV[4 * i - 1]] then
    known('document', call('HGET', KEYS[i], 'f'))
  end
end
for i = 1, #KEYS do
  local at = 4 * i - 1
  if steps[ARGV[at]](KEYS[i], ARGV[at + 1], ARGV[at + 2]) == false then
    return {text(now), ARGV[at + 3]}
  end
end
return {text(now), '0'}
