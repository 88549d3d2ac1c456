-- Stands before scripts that put a session into mirrors of indexes: it is expected to be in those indexes again.

-- mirror puts a session into the mirrors KEYS[first], KEYS[first + 1] and so on (sorted sets: session -> when the entry
-- expires, in ms), for life ms. Entries that have expired go: from the first mirror always, because a full Redis
-- refuses a script whose first write is not a removal; from the others with one call in 16, which saves two commands of
-- each device that comes back.
local function mirror(first, life, session)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for i = first, #KEYS do
    if i == first or time[2] % 16 == 0 then
      redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now))
    end
    redis.call('ZADD', KEYS[i], string.format('%.0f', now + life), session)
    redis.call('PEXPIRE', KEYS[i], life)
  end
end
