-- Appends answers to the list of the pod that waits for them, as far as it has room. The pod may be gone, so the list
-- expires. Only a pod that does not read has a long list.
--
-- KEYS 1 replies (list)
-- ARGV 1 TTL in ms, 2 bytes up to which the list takes long payloads, 3 bytes up to which it takes others, 4 bytes from
--      which a payload is long, 5... payloads
-- Returns the positions of the payloads that it did not append, from 1.

local used = 0
if redis.call('LLEN', KEYS[1]) >= 8 then
    used = redis.call('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0)
end
local pushed, refused = {}, {}
for i = 5, #ARGV do
    local size = #ARGV[i]
    if used + size > tonumber(size >= tonumber(ARGV[4]) and ARGV[2] or ARGV[3]) then
        refused[#refused + 1] = i - 4
    else
        used = used + size
        pushed[#pushed + 1] = ARGV[i]
    end
end
if #pushed > 0 then
    redis.call('RPUSH', KEYS[1], unpack(pushed))
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return refused
