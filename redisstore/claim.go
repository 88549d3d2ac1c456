package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

func (s *Store) Claim(ctx context.Context, sess registry.Session) (registry.Claim, error) {
	if err := sess.Validate(); err != nil {
		return registry.Claim{}, err
	}
	for range maxOwners {
		claim, owner, err := s.claim(ctx, sess)
		if owner == "" {
			return claim, err
		}
		sess.UserID = owner // the session stays this user's
	}
	return registry.Claim{}, registry.StoreUnavailable("claim",
		errors.New("the session's owner changes too often"))
}

// maxOwners bounds how often a claim with AnyOwner is repeated because the session's user has changed meanwhile.
const maxOwners = 4

// claim claims a session. If the session can only be claimed for the user it belongs to, claim returns that user.
func (s *Store) claim(ctx context.Context, sess registry.Session) (_ registry.Claim, owner string, err error) {
	pipe := s.conn.SessionPipeline()
	sess.ReclaimableBy, sess.ReclaimableUntil = nil, time.Time{}
	device := ""
	if sess.Bound {
		device = sess.DeviceID
	}
	args := []any{
		s.sessionTTL, sess.Pod, decimal(sess.Generation), registry.HeirTerm.Milliseconds(),
		registry.FormerTerm.Milliseconds(), registry.MaxFormers, sess.UserID, device, flag(sess.AnyOwner),
		registry.RegisterWait.Milliseconds(),
	}
	args = append(args, attributeFields(sess)...)
	c := pipe.Eval(scriptClaim, append(sessionKeys(sess.Key), formersKey(sess.Key), expectedKey(sess.Key)), args...)
	if err := pipe.Exec(ctx); err != nil {
		return registry.Claim{}, "", err
	}
	answer := c.List()
	if len(answer) != 7 {
		return registry.Claim{}, "", c.ErrShape()
	}
	switch redisconn.Int(answer[0]) {
	case -1:
		return registry.Claim{}, "", registry.ErrForeignSession
	case -2:
		return registry.Claim{}, redisconn.Text(answer[3]), nil
	}
	claim, err := s.claimed(ctx, sess, answer)
	return claim, "", err
}

// claimed reads the answer to a claim, and adds the session to its indexes.
func (s *Store) claimed(ctx context.Context, sess registry.Session, answer []any) (registry.Claim, error) {
	at := fromMillis(redisconn.Text(answer[1]))
	if redisconn.Int(answer[0]) == 0 {
		holder, err := parseSession(sess.Key, redisconn.Map(answer[2]))
		if err != nil {
			return registry.Claim{}, err
		}
		return registry.Claim{}, &registry.Held{Holder: holder, At: at}
	}
	stored := sess.Clone()
	stored.AnyOwner = false
	stored.Generation, stored.ConnectedAt = redisconn.Int(answer[0]), at
	stored.ReclaimableBy, stored.ReclaimableUntil = parseHeirs(redisconn.Text(answer[4]))

	claim := registry.Claim{Session: stored, Formers: redisconn.Strings(answer[5])}
	claim.Before = parseGone(sess.Key, redisconn.Text(answer[3]))
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation - 1}
	p.mirrors = mirrorsOf(sess.Tenant, sess.UserID, redisconn.Strings(answer[6]))
	if previous := s.replace(&p, answer[2]); previous != nil {
		claim.Previous, claim.Before = previous, previous
	}
	if err := s.place(ctx, p); err != nil {
		return registry.Claim{}, err
	}
	return claim, nil
}

// replace makes p remove the index entries of the former hash of the session, and returns what that hash had; nil if
// there was none.
func (s *Store) replace(p *placement, answer any) *registry.Session {
	hash := redisconn.Map(answer)
	if len(hash) == 0 {
		return nil
	}
	previous, err := parseSession(p.session.Key, hash)
	if err != nil {
		s.log.Warn("the session's former hash is not readable; readers remove its index entries",
			"session", p.session.Key.Session, "error", err)
	}
	p.remove, p.leavePod = append(p.remove, attributeIndexes(previous)...), previous.Pod
	p.removeSet(hash[fieldSet])
	return &previous
}

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
	if pulse := appendPulse(nil, e.Pulse); len(pulse) > 0 {
		args = append(args, fieldPulse, pulse)
	}
	pipe := s.conn.SessionPipeline()
	if err := s.putSet(pipe, sess.Tenant, set, e.Tools); err != nil {
		return registry.Session{}, err
	}
	pipe.Then()
	c := pipe.Eval(scriptRestore, sessionKeys(sess.Key), args...)
	if err := pipe.Exec(ctx); err != nil {
		return registry.Session{}, err
	}
	answer, found, err := c.Parts(3)
	switch {
	case err != nil:
		return registry.Session{}, err
	case !found:
		return registry.Session{}, registry.ErrNotOwner
	}
	stored := sess.Clone()
	stored.Generation = redisconn.Int(answer[0])
	stored.ConnectedAt = fromMillis(redisconn.Text(answer[1]))
	p := placement{session: stored, add: attributeIndexes(stored), upTo: stored.Generation}
	p.addSet(set)
	s.replace(&p, answer[2])
	if err := s.place(ctx, p); err != nil {
		return registry.Session{}, err
	}
	return stored, nil
}

func (s *Store) Update(ctx context.Context, sess registry.Session) error {
	pipe := s.conn.SessionPipeline()
	args := append([]any{s.sessionTTL, sess.Pod, decimal(sess.Generation)}, attributeFields(sess)...)
	c := pipe.Eval(scriptUpdate, sessionKeys(sess.Key), args...)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	hash, err := fenced("update", c)
	if err != nil {
		return err
	}
	previous, err := parseSession(sess.Key, redisconn.Map(hash))
	if err != nil {
		return err
	}
	before, now := attributeIndexes(previous), attributeIndexes(sess)
	p := placement{session: sess, known: true, keep: now, remove: before, upTo: sess.Generation}
	for _, index := range now {
		if !slices.Contains(before, index) { // Refresh keeps the session in the others
			p.add = append(p.add, index)
		}
	}
	return s.place(ctx, p)
}

func (s *Store) SetTools(ctx context.Context, sess registry.Session, tools []registry.ToolSpec) error {
	set, epoch, since := newToolSet(tools), s.written.epoch.Load(), sess.Seniority().UnixMilli()
	pipe := s.conn.SessionPipeline()
	writes := !s.written.has(sess.Tenant, set.hash, since)
	if writes {
		if err := s.putSet(pipe, sess.Tenant, set, tools); err != nil {
			return err
		}
	}
	pipe.Then() // a set is named only after it can be read
	c := pipe.Eval(scriptSetTools, append(sessionKeys(sess.Key), expectedKey(sess.Key)),
		s.sessionTTL, sess.Pod, decimal(sess.Generation), set.hash, registry.SettleWait.Milliseconds())
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	before, err := fenced("set tools", c)
	if err != nil {
		return err
	}
	p := placement{session: sess, known: true, upTo: sess.Generation}
	p.addSet(set)
	p.removeSet(redisconn.Text(before))
	if err := s.place(ctx, p); err != nil {
		return err
	}
	if writes {
		s.written.add(sess.Tenant, set.hash, since, epoch)
	}
	return nil
}

// Release implements registry.SessionStore. The claim goes first: from then on calls wait for a device that is expected
// back, and index members lead to no session. Tools are counted by their members, so these must go, and only the claim
// said which they are: hence the UnfinishedError.
func (s *Store) Release(ctx context.Context, sess registry.Session, back time.Duration) (bool, error) {
	pipe := s.conn.SessionPipeline()
	c := s.release(pipe, sess.Ref(), sess.Pod, back)
	if err := pipe.Exec(ctx); err != nil {
		return false, err
	}
	hash, expected, current := releasedHash(c)
	if !current { // nothing else is known of an earlier claim
		return false, s.leave(sess, nil, nil)(ctx)
	}
	indexes, _ := s.indexesOf(sess.Key, hash)
	leave := s.leave(sess, indexes, mirrorsOf(sess.Tenant, hash[fieldUserID], expected))
	if err := leave(ctx); err != nil {
		return true, &registry.UnfinishedError{Err: err, Finish: leave}
	}
	return true, nil
}

// Forget implements registry.SessionStore.
func (s *Store) Forget(e registry.Entry) func(context.Context) error {
	indexes := attributeIndexes(e.Session)
	if set := newToolSet(e.Tools); set.hash != "" {
		indexes = append(indexes, membersIndex(e.Session.Tenant, set.hash))
	}
	return s.leave(e.Session, indexes, nil)
}

// leave returns a function that removes an ended claim from these indexes and from its pod's, and adds the session to
// the mirrors. It can be called again.
func (s *Store) leave(sess registry.Session, indexes, mirrors []string) func(context.Context) error {
	key, pod, generation := sess.Key, sess.Pod, sess.Generation
	return func(ctx context.Context) error {
		pipe := s.conn.SessionPipeline()
		s.leaveIndexes(pipe, key, indexes, mirrors, pod, generation)
		if len(indexes) > 0 {
			s.changed(pipe, key.Tenant)
		}
		err := pipe.Exec(ctx)
		if redis.HasErrorPrefix(err, "OOM") { // of all this, a full Redis refuses only the new version of the listings
			s.log.Warn("session released; listings show it late", "session", key.Session, "error", err)
			return nil
		}
		return err
	}
}

// release adds the script that ends a claim to the pipeline. The device is expected back within the duration back, at
// most the session TTL.
func (s *Store) release(pipe *redisconn.Pipeline, ref registry.Ref, pod string, back time.Duration) *redisconn.Command {
	keys := append(sessionKeys(ref.Key), expectedKey(ref.Key))
	expected := min(max(back.Milliseconds(), 0), s.sessionTTL)
	return pipe.Eval(scriptRelease, keys, s.sessionTTL, pod, decimal(ref.Generation), expected)
}

// releasedHash returns the hash of a released session, the expected offer of its next connection, and whether the claim
// was current.
func releasedHash(released *redisconn.Command) (hash map[string]string, expected []string, current bool) {
	answer := released.List()
	if len(answer) != 3 || redisconn.Int(answer[0]) != 1 {
		return nil, nil, false
	}
	return redisconn.Map(answer[1]), redisconn.Strings(answer[2]), true
}

// indexesOf returns the indexes that a session with this hash is in, and its generation.
func (s *Store) indexesOf(key registry.Key, hash map[string]string) (indexes []string, generation int64) {
	was, err := parseSession(key, hash)
	if err != nil {
		s.log.Warn("the hash of a removed session is not readable; readers remove its index entries",
			"session", key.Session, "error", err)
		return nil, 0
	}
	indexes = attributeIndexes(was)
	if set := hash[fieldSet]; set != "" {
		indexes = append(indexes, membersIndex(key.Tenant, set))
	}
	return indexes, was.Generation
}
