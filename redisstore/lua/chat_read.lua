-- Reads a conversation.
--
-- KEYS 1 messages (list), 2 meta (hash), 3 draft (string), 4 trail (list)
-- Returns {messages, draft (empty: none), title, 1 while the lease of a turn runs else 0, user, device,
-- 1 if the device is the credential's}.

return {
  redis.call('LRANGE', KEYS[1], 0, -1), redis.call('GET', KEYS[3]) or '', redis.call('HGET', KEYS[2], 'title') or '',
  remaining() > 0 and 1 or 0, redis.call('HGET', KEYS[2], 'user') or '', redis.call('HGET', KEYS[2], 'device') or '',
  redis.call('HGET', KEYS[2], 'bound') or '',
}
