-- Says whose the conversation is, unless that is known.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- ARGV 1 TTL in ms, 2 fence of the turn, 3 user, 4 device, 5 1 if the device is the credential's else empty
-- Returns 1; -1 when the turn is not the current one.

if not held(ARGV[2]) then
  return -1
end
if redis.call('HSETNX', KEYS[2], 'owned', 1) == 1 then
  redis.call('HSET', KEYS[2], 'user', ARGV[3], 'device', ARGV[4], 'bound', ARGV[5])
end
keep()
return 1
