-- What the scripts on queues share. It stands before each of them.
--
-- KEYS 1 calls of the tenant (hash: call → head, line feed, request), 2 when each expires (zset, ms), 3 sums (hash),
--      4 the queue of one device (zset: call → position)
-- A head has the device's name, the identity, the bytes of the request, the time since when it waits and the time when
-- it expires (ms), with spaces between. Names are percent-encoded; no identity is '-'.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) -- ms

local function whole(n)
  return string.format('%.0f', n)
end

-- fields reads a head.
local function fields(text)
  return string.match(text, '^(%S+) (%S+) (%d+) (%d+) (%d+)\n')
end

-- sum returns one of the sums.
local function sum(name)
  return tonumber(call('HGET', KEYS[3], name) or 0)
end

-- add adds to a sum. One of zero is not kept.
local function add(name, n)
  if call('HINCRBY', KEYS[3], name, whole(n)) == 0 then
    call('HDEL', KEYS[3], name)
  end
end

-- count adds n calls of so many bytes to the sums of the tenant, of an identity and of a device.
local function count(device, identity, n, bytes)
  add('n', n)
  add('b', n * bytes)
  add('db ' .. device, n * bytes)
  if identity ~= '-' then
    add('in ' .. identity, n)
    add('ib ' .. identity, n * bytes)
  end
end
