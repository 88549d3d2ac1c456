-- What the scripts on the approvals of a tenant share. It stands before each of them.
--
-- KEYS 1 approval (hash: d what was asked as JSON, args, request; state, by, at, scope of the verdict; created and
--      expires in ms; two '1' if two persons must allow it, first the one that has, firstby its name, voter
--      how it was proved; wrong how many answers were no decision)

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = string.format('%.0f', now)

-- live gives an index one more life, unless it lives longer already.
local function live(key, life)
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(life, redis.call('PTTL', key))))
end

-- verdict returns state, by, at and scope; an approval whose time is up has expired.
local function verdict()
  local v = redis.call('HMGET', KEYS[1], 'state', 'by', 'at', 'scope', 'expires')
  if v[1] == 'pending' and tonumber(v[5]) <= now then
    return {'expired', '', v[5], ''}
  end
  return {v[1] or '', v[2] or '', v[3] or '', v[4] or ''}
end

-- whole returns the verdict, what was asked, when it was created and expires, the arguments, and who has allowed it
-- while a second must: name, person and proof.
local function whole(args)
  local all = verdict()
  local rest = redis.call('HMGET', KEYS[1], 'd', 'created', 'expires', args and 'args' or 'none', 'firstby',
    'first', 'voter')
  for i = 1, 7 do
    all[4 + i] = rest[i] or ''
  end
  return all
end
