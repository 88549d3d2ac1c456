-- Adds to the events of a call, which expire no sooner than its record.
--
-- KEYS 1 record (hash), 2 events (stream)
-- ARGV 1 retention in ms, 2... pairs of rank and event
-- Returns 1.

for i = 2, #ARGV, 2 do
  log(ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', math.max(tonumber(ARGV[1]), redis.call('PTTL', KEYS[1]))))
return 1
