-- Counts an answer that was no decision.
--
-- KEYS 1 approval
-- Returns how many there were; 0 when the approval does not wait.

if verdict()[1] ~= 'pending' then
  return 0
end
return redis.call('HINCRBY', KEYS[1], 'wrong', 1)
