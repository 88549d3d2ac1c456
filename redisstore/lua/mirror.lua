-- Puts a session into mirrors.
--
-- KEYS the mirrors, all in one slot or on a single server
-- ARGV 1 for how many ms an entry is kept, 2 the session

mirror(1, ARGV[1], ARGV[2])
