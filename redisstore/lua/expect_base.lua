-- Stands before scripts that end a claim, and remember what the next connection of the session is expected to offer.

-- fieldsOf returns a hash, which Redis returns as a flat list, as a table.
local function fieldsOf(list)
  local fields = {}
  for i = 1, #list, 2 do
    fields[list[i]] = list[i + 1]
  end
  return fields
end

-- The expected string is the tool sets, separated by spaces, and on lines of their own the device and the labels of
-- the connection that offered them, in JSON. It lives as long as something is expected.
--
-- expect writes it: set is that of the connection that ends, nil if it had none; what was expected of that connection,
-- and has not come, is expected still. It returns {sets, device}, empty when nothing is expected.
local function expect(key, set, device, labels, ttl)
  local sets, was = set or '', redis.call('GET', key)
  if was and versionOf(was) then
    return {} -- a newer release's: it stays
  elseif was then
    local former, itsDevice, itsLabels = string.match(was, '^(%S*)[^\n]*\n([^\n]*)\n(.*)$')
    if sets == '' then
      sets = former
    elseif former ~= sets then
      sets = sets .. ' ' .. former
    end
    device, labels = device or itsDevice, labels or itsLabels
  end
  if sets == '' then
    return {}
  end
  redis.call('SET', key, sets .. '\n' .. (device or '') .. '\n' .. (labels or ''), 'PX', ttl)
  return {sets, device or ''}
end

