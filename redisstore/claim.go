package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// Claim implements registry.SessionStore.
func (s *Store) Claim(ctx context.Context, sess registry.Session) (registry.Claim, error) {
	if err := sess.Validate(); err != nil {
		return registry.Claim{}, err
	}
	b := s.conn.sessionBatch()
	formers := b.eval(scriptFormers, append(sessionKeys(sess.Key), formersKey(sess.Key)),
		sess.Pod, registry.FormerTerm.Milliseconds(), registry.MaxFormers) // in the same part: a claim must not be repeated
	sess.Heirs, sess.HeirsUntil = nil, time.Time{}
	args := append([]any{s.sessionTTL, sess.Pod, decimal(sess.Generation), registry.HeirTerm.Milliseconds()}, attributeFields(sess)...)
	c := b.eval(scriptClaim, sessionKeys(sess.Key), args...)
	if err := b.run(ctx); err != nil {
		return registry.Claim{}, unavailable("claim", err)
	}
	answer := c.list()
	if len(answer) != 5 {
		return registry.Claim{}, unavailable("claim", errShape(c))
	}
	at, _ := answer[1].(string)
	gone, _ := answer[3].(string)
	heirs, _ := answer[4].(string)
	if toInt(answer[0]) == 0 {
		holder, err := parseSession(sess.Key, toMap(answer[2]))
		if err != nil {
			return registry.Claim{}, unavailable("claim", err)
		}
		return registry.Claim{}, &registry.Held{Holder: holder, At: fromMillis(at)}
	}
	stored := sess.Clone()
	stored.Generation, stored.ConnectedAt = toInt(answer[0]), fromMillis(at)
	stored.Heirs, stored.HeirsUntil = parseHeirs(heirs)

	claim := registry.Claim{Session: stored, Formers: toStrings(formers.cmd.Val())}
	_, claim.Before = parseGone(sess.Key, gone)
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation - 1}
	if before := toMap(answer[2]); len(before) > 0 {
		previous, err := parseSession(sess.Key, before)
		if err != nil {
			s.log.Warn("previous claim not readable; its index entries go as they are read",
				"session", sess.Key.Session, "error", err)
		}
		p.replace(previous, before[fieldSet])
		claim.Previous, claim.Before = &previous, &previous
	}
	if err := s.place(ctx, p); err != nil {
		return registry.Claim{}, unavailable("claim", err)
	}
	return claim, nil
}

// replace makes p remove what the previous claim of the session left in the indexes.
func (p *placement) replace(previous registry.Session, set string) {
	p.remove = append(p.remove, attributeIndexes(previous)...)
	p.removeSet(set)
	p.leave = previous.Pod
}

// Restore implements registry.SessionStore.
func (s *Store) Restore(ctx context.Context, e registry.Entry) (registry.Session, error) {
	sess := e.Session
	if err := sess.Validate(); err != nil {
		return registry.Session{}, err
	}
	set := newToolSet(e.Tools)
	args := []any{
		s.sessionTTL, sess.Pod, decimal(sess.Generation), decimal(sess.Generation + 1), timeMillis(sess.ConnectedAt),
	}
	args = append(args, attributeFields(sess)...)
	if set.hash != "" {
		args = append(args, fieldSet, set.hash)
	}
	b := s.conn.sessionBatch()
	if err := s.putSet(b, sess.Tenant, set, e.Tools); err != nil {
		return registry.Session{}, err
	}
	b.then()
	c := b.eval(scriptRestore, sessionKeys(sess.Key), args...)
	if err := b.run(ctx); err != nil {
		return registry.Session{}, unavailable("restore", err)
	}
	answer := c.list()
	if len(answer) != 3 {
		return registry.Session{}, registry.ErrNotOwner
	}
	at, _ := answer[1].(string)
	stored := sess.Clone()
	stored.Generation, stored.ConnectedAt = toInt(answer[0]), fromMillis(at)
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation}
	p.addSet(set)
	if before := toMap(answer[2]); len(before) > 0 {
		previous, err := parseSession(sess.Key, before)
		if err != nil {
			s.log.Warn("what was left of the session is not readable", "session", sess.Key.Session, "error", err)
		}
		p.replace(previous, before[fieldSet])
	}
	if err := s.place(ctx, p); err != nil {
		return registry.Session{}, unavailable("restore", err)
	}
	return stored, nil
}

// Update implements registry.SessionStore.
func (s *Store) Update(ctx context.Context, sess registry.Session) error {
	b := s.conn.sessionBatch()
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
	before, now := attributeIndexes(previous), attributeIndexes(sess)
	p := placement{session: sess, keep: now, remove: before, upTo: sess.Generation}
	for _, index := range now {
		if !slices.Contains(before, index) { // Refresh sees to it that the session is in the others
			p.add = append(p.add, index)
		}
	}
	return unavailable("update", s.place(ctx, p))
}

// SetTools implements registry.SessionStore.
func (s *Store) SetTools(ctx context.Context, sess registry.Session, tools []registry.ToolSpec) error {
	set := newToolSet(tools)
	b := s.conn.sessionBatch()
	if err := s.putSet(b, sess.Tenant, set, tools); err != nil {
		return err
	}
	b.then() // a set is only ever named once it can be read
	c := b.eval(scriptSetTools, sessionKeys(sess.Key), s.sessionTTL, sess.Pod, decimal(sess.Generation), set.hash)
	if err := b.run(ctx); err != nil {
		return unavailable("set tools", err)
	}
	answer := c.list()
	if len(answer) == 0 {
		return unavailable("set tools", errShape(c))
	}
	if err := fenced("set tools", toInt(answer[0])); err != nil {
		return err
	}
	p := placement{session: sess, upTo: sess.Generation}
	p.addSet(set)
	if before, _ := answer[1].(string); before != "" {
		p.removeSet(before)
	}
	return unavailable("set tools", s.place(ctx, p))
}
