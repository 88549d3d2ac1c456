-- Writes a key of an export, unless there is another value.
--
-- KEYS 1 the key
-- ARGV 1 type: string, hash or list, 2 when it expires in ms, 3 '1': another value is replaced, 4... the value: a text,
--      pairs of field and value, or elements
-- Returns 1 if it was written, 0 if the value is there already, -1 if another one is, and stays.

local call = redis.call

local same = {
  string = function()
    return call('GET', KEYS[1]) == ARGV[4]
  end,
  hash = function()
    if call('HLEN', KEYS[1]) * 2 ~= #ARGV - 3 then
      return false
    end
    for i = 4, #ARGV, 2 do
      if call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then
        return false
      end
    end
    return true
  end,
  list = function()
    local all = call('LRANGE', KEYS[1], 0, -1)
    if #all ~= #ARGV - 3 then
      return false
    end
    for i = 1, #all do
      if all[i] ~= ARGV[i + 3] then
        return false
      end
    end
    return true
  end,
}

local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'none' then
  if kind == ARGV[1] and same[kind]() then
    return 0
  end
  if ARGV[3] ~= '1' then
    return -1
  end
  call('DEL', KEYS[1])
end
local write = {string = 'SET', hash = 'HSET', list = 'RPUSH'}
for i = 4, #ARGV, 1000 do -- Lua unpacks a few thousand values at most
  call(write[ARGV[1]], KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
call('PEXPIREAT', KEYS[1], ARGV[2])
return 1
