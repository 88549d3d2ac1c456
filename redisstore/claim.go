package redisstore

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// Claim implements registry.SessionStore.
func (s *Store) Claim(ctx context.Context, sess registry.Session) (registry.Claim, error) {
	if err := sess.Validate(); err != nil {
		return registry.Claim{}, err
	}
	b := s.conn.batch()
	c := b.eval(scriptClaim, sessionKeys(sess.Key), append([]any{s.sessionTTL, sess.Pod}, attributeFields(sess)...)...)
	if err := b.run(ctx); err != nil {
		return registry.Claim{}, unavailable("claim", err)
	}
	answer := c.list()
	if len(answer) != 5 {
		return registry.Claim{}, unavailable("claim", errShape(c))
	}
	at, _ := answer[1].(string)
	former, _ := answer[4].(string)
	stored := sess.Clone()
	stored.Generation, stored.ConnectedAt = toInt(answer[0]), fromMillis(at)

	claim := registry.Claim{Session: stored, Former: former}
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation - 1}
	if before := toMap(answer[2]); len(before) > 0 {
		previous, err := parseSession(sess.Key, before)
		if err != nil {
			s.log.Warn("previous claim not readable; its index entries go as they are read",
				"session", sess.Key.Session, "error", err)
		}
		p.replace(previous, toMap(answer[3]))
		claim.Previous = &registry.Session{Key: sess.Key, Pod: previous.Pod, Generation: previous.Generation}
		claim.Former = previous.Pod
	}
	if err := s.place(ctx, p); err != nil {
		return registry.Claim{}, unavailable("claim", err)
	}
	return claim, nil
}

// replace makes p remove what the previous claim of the session left in the indexes.
func (p *placement) replace(previous registry.Session, tools map[string]string) {
	p.remove = append(p.remove, attributeIndexes(previous)...)
	p.removeTools(tools)
	p.leave = previous.Pod
}

// Restore implements registry.SessionStore.
func (s *Store) Restore(ctx context.Context, e registry.Entry) (registry.Session, error) {
	sess := e.Session
	if err := sess.Validate(); err != nil {
		return registry.Session{}, err
	}
	hashes := hashTools(e.Tools)
	attributes := attributeFields(sess)
	args := []any{
		s.sessionTTL, sess.Pod, decimal(sess.Generation), decimal(sess.Generation + 1),
		connectedMillis(sess), len(attributes),
	}
	args = append(args, attributes...)
	for name, hash := range hashes {
		args = append(args, name, hash)
	}
	b := s.conn.batch()
	if err := s.putSpecs(b, sess.Tenant, e.Tools); err != nil {
		return registry.Session{}, err
	}
	b.then()
	c := b.eval(scriptRestore, sessionKeys(sess.Key), args...)
	if err := b.run(ctx); err != nil {
		return registry.Session{}, unavailable("restore", err)
	}
	answer := c.list()
	if len(answer) != 4 {
		return registry.Session{}, registry.ErrNotOwner
	}
	at, _ := answer[1].(string)
	stored := sess.Clone()
	stored.Generation, stored.ConnectedAt = toInt(answer[0]), fromMillis(at)
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation}
	p.addTools(hashes)
	if before := toMap(answer[2]); len(before) > 0 {
		previous, err := parseSession(sess.Key, before)
		if err != nil {
			s.log.Warn("what was left of the session is not readable", "session", sess.Key.Session, "error", err)
		}
		p.replace(previous, toMap(answer[3]))
	}
	if err := s.place(ctx, p); err != nil {
		return registry.Session{}, unavailable("restore", err)
	}
	return stored, nil
}

// Update implements registry.SessionStore.
func (s *Store) Update(ctx context.Context, sess registry.Session) error {
	b := s.conn.batch()
	args := append([]any{s.sessionTTL, sess.Pod, decimal(sess.Generation)}, attributeFields(sess)...)
	c := b.eval(scriptUpdate, sessionKeys(sess.Key), args...)
	if err := b.run(ctx); err != nil {
		return unavailable("update", err)
	}
	answer := c.list()
	if len(answer) == 0 {
		return unavailable("update", errShape(c))
	}
	if err := fenced("update", toInt(answer[0])); err != nil {
		return err
	}
	previous, err := parseSession(sess.Key, toMap(answer[1]))
	if err != nil {
		return unavailable("update", err)
	}
	return unavailable("update", s.place(ctx, placement{
		session: sess, add: attributeIndexes(sess), remove: attributeIndexes(previous), upTo: sess.Generation,
	}))
}

// PutTools implements registry.SessionStore.
func (s *Store) PutTools(ctx context.Context, sess registry.Session, put []registry.ToolSpec, drop []string) error {
	hashes := hashTools(put)
	args := []any{s.sessionTTL, sess.Pod, decimal(sess.Generation), 2 * len(hashes)}
	for name, hash := range hashes {
		args = append(args, name, hash)
	}
	for _, name := range drop {
		args = append(args, name)
	}
	b := s.conn.batch()
	if err := s.putSpecs(b, sess.Tenant, put); err != nil {
		return err
	}
	b.then() // a hash is only ever named once its specification can be read
	c := b.eval(scriptPutTools, sessionKeys(sess.Key), args...)
	if err := b.run(ctx); err != nil {
		return unavailable("put tools", err)
	}
	answer := c.list()
	if len(answer) == 0 {
		return unavailable("put tools", errShape(c))
	}
	if err := fenced("put tools", toInt(answer[0])); err != nil {
		return err
	}
	p := placement{session: sess, upTo: sess.Generation}
	p.addTools(hashes)
	p.removeReplaced(toStrings(answer[1]))
	return unavailable("put tools", s.place(ctx, p))
}

// removeReplaced makes p leave the indexes of tools that were dropped or got another specification, given as a flat
// list of name and old hash.
func (p *placement) removeReplaced(replaced []string) {
	for i := 0; i+1 < len(replaced); i += 2 {
		p.remove = append(p.remove, toolIndexes(p.session.Tenant, replaced[i], replaced[i+1])...)
	}
}
