-- Decides a request to pair that is not decided yet.
--
-- KEYS 1 request (hash), 2 its code
-- ARGV 1 decision, 2 TTL in ms from now, 3 '1' if it has a code
-- Returns 1, 0 if there is no request, 2 if it was decided before.

if redis.call('HEXISTS', KEYS[1], 'body') == 0 then
  return 0
end
if redis.call('HSETNX', KEYS[1], 'decision', ARGV[1]) == 0 then
  return 2
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] == '1' then
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2]) -- it is used up, and no wrong one
end
return 1
