-- Reads the verdict of an approval.
--
-- KEYS 1 approval
-- Returns {state, by, at in ms, scope}, all empty when there is none.

return verdict()
