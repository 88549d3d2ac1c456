-- Forgets a conversation, and with it the turn that may be under way, and gives its place a new generation if there is
-- anything that may use it: a place, or a conversation that may have a turn. Forgetting needs no memory, so it works in
-- a full Redis also. The place then still gets a new generation when it is claimed again.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list), 5 place (hash)
-- ARGV 1 TTL in ms, 2 TTL of the place in ms
-- Returns how many of the keys of the conversation there were.

known('place', redis.call('HGET', KEYS[5], 'v'))
local used = redis.call('EXISTS', KEYS[2], KEYS[5]) > 0
local generation = math.max(time[1] * 1000000 + time[2],
  tonumber(redis.call('HGET', KEYS[5], 'generation') or 0) + 1,
  tonumber(redis.call('HGET', KEYS[2], 'fence') or 0) + 1)
redis.call('DEL', KEYS[5])
local forgotten = redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if used then
  local written = redis.pcall('HSET', KEYS[5], 'generation', string.format('%.0f', generation))
  if type(written) == 'number' then
    redis.call('PEXPIRE', KEYS[5], ARGV[2])
  end
end
return forgotten
