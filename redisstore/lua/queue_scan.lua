-- Returns a page of a tenant's queued calls, without their requests.
--
-- KEYS 1 to 3 as in queue_base
-- ARGV 1 where to begin (the cursor of HSCAN), 2 about how many calls
-- Returns {the next cursor, 0: this is the last page, then for each call its id and head}.

local page = call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = {page[1]}
for i = 1, #page[2], 2 do
  answer[#answer + 1] = page[2][i]
  answer[#answer + 1] = string.match(page[2][i + 1], '^[^\n]*\n')
end
return answer
