-- Describes a conversation.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms
-- Returns {how many messages, title, named, created, active, user, device, fence of the turn under way, 1 if the
-- device is the credential's}, empty where unknown.

local meta = redis.call('HMGET', KEYS[2], 'title', 'named', 'created', 'active', 'user', 'device', 'holder', 'bound')
for i = 1, 8 do
  meta[i] = meta[i] or ''
end
if remaining() <= 0 then
  meta[7] = ''
end
return {redis.call('LLEN', KEYS[1]), unpack(meta)}
