-- Makes a pod the owner of a session under a new, higher generation. It starts without tools.
--
-- KEYS 1 session hash, 2 gone string, 3 formers (sorted set: pod, when the session left it in ms), 4 expected string
-- ARGV 1 session TTL in ms, 2 pod, 3 the generation that may be replaced without asking (0: none, -1: any), 4 for
--      how many ms the device that had the session may take it back, 5 for how many ms a pod that the session left is
--      remembered, 6 how many of them, 7 the user, 8 the device of the credential, 9 not empty: the session may
--      belong to another user, 10 for how many ms what the session offered is expected of the new connection,
--      11... field and value pairs of the attributes
-- Returns {generation, the time in ms, the previous session hash, the gone string, heirs, formers, expected}; the hash
-- is a flat list, empty when there was none; formers are the pods that the session has left, the last one first, also
-- the claiming pod itself; expected is what expect returns, empty if the mirrors have it already.
--
-- A generation below 1 means that nothing has changed: 0 when the present owner must be asked first, -1 when the
-- session belongs to another user or device, -2 when it may be claimed only with the user that follows the time in the
-- answer.

-- The gone string is "generation pod", and then, each on a line of its own, fields of the session hash: a (whether its
-- owner had to be asked first), d (its device), k (proofs), r (heirs), c (capabilities), t (when it connected),
-- b (since when its device has it), and, if it has a user or is bound, u and o.
local gone = redis.call('GET', KEYS[2]) or '0'
known('session', versionOf(gone))
local goneGen = tonumber(string.match(gone, '^%d+'))

local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local before = redis.call('HGETALL', KEYS[1])
local was = fieldsOf(before)
known('session', was.v)
local held, asked, proofs, heirs, pod, user, device, bound = was.g, was.a, was.k, was.r, was.p, was.u, was.d, was.o
if not held then
  local lines = {}
  for line in string.gmatch(gone .. '\n', '([^\n]*)\n') do
    lines[#lines + 1] = line
  end
  device, user, bound = lines[3], lines[9], lines[10]
end
if (user or '') ~= '' and user ~= ARGV[7] then
  return {ARGV[9] == '' and '-1' or '-2', at, {}, ARGV[9] == '' and '' or user, '', {}, {}}
end
if (bound or '') ~= '' and device ~= ARGV[8] and ARGV[9] == '' then
  return {'-1', at, {}, '', '', {}, {}}
end
if held and asked and ARGV[3] ~= held and ARGV[3] ~= '-1' then
  return {'0', at, before, '', '', {}, {}}
end
if not held then
  asked, proofs, heirs = string.match(gone, '^[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n([^\n]*)')
end

-- Heirs are "until proof proof": they stay until their time is over, and only then others can become it.
if not heirs or tonumber(string.match(heirs, '^%d+') or 0) <= tonumber(at) then
  heirs = ''
  if (asked or '') ~= '' and (proofs or '') ~= '' then
    heirs = string.format('%.0f', at + ARGV[4]) .. ' ' .. proofs
  end
end

-- Generations are clock readings in microseconds, so that they keep growing when Redis lost the session; the
-- stored ones guard against a clock that went back. Both fit a double, and '%.0f' prints them in full.
local gen = time[1] * 1000000 + time[2]
gen = math.max(gen, (held or 0) + 1, goneGen + 1)
gen = string.format('%.0f', gen)

redis.call('DEL', KEYS[1], KEYS[2]) -- first, as in release.lua
local expected = {}
if held or (user or '') ~= ARGV[7] then
  expected = expect(KEYS[4], was.s, was.d, was.l, ARGV[10])
else -- who released the session has written it, and then the mirrors
  redis.call('PEXPIRE', KEYS[4], ARGV[10])
end
redis.call('HSET', KEYS[1], 'p', ARGV[2], 'g', gen, 't', at, unpack(ARGV, 11))
if heirs ~= '' then
  redis.call('HSET', KEYS[1], 'r', heirs)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])

pod = pod or string.match(gone, '^%d+ (%S+)')
if pod and pod ~= ARGV[2] then
  redis.call('ZADD', KEYS[3], at, pod)
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - ARGV[6])
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
end
local formers = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', string.format('(%.0f', at - ARGV[5]))
return {gen, at, before, gone, heirs, formers, expected}
