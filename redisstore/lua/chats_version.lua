-- Reads the version of the lists, and how many conversations they have: those whose time has come leave without a new
-- version.
--
-- KEYS 1 index (sorted set), 2 version (string), 3 running (sorted set)
-- ARGV 1 TTL in ms, 2 a version for lists that have none
-- Returns {version (empty: there are no conversations), how many}.

local count = redis.call('ZCOUNT', KEYS[1], '(' .. oldest, '+inf')
local version = redis.call('GET', KEYS[2])
if not version and count > 0 then
  version = ARGV[2]
  redis.call('SET', KEYS[2], version, 'PX', ARGV[1])
end
return {version or '', count}
