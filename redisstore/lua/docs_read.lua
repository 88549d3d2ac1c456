-- Reads documents of one space, at one moment.
--
-- KEYS documents (hash, see docs_write)
-- Returns {time in ms, then for each document: form, revision, data, creation in ms, ms until it expires}; a document
-- that does not exist has empty texts.

local time = redis.call('TIME')
local all = {string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))}
for _, key in ipairs(KEYS) do
  local found = redis.call('HMGET', key, 'f', 'v', 'd', 'c')
  for i = 1, 4 do
    all[#all + 1] = found[i] or ''
  end
  all[#all + 1] = redis.call('PTTL', key)
end
return all
