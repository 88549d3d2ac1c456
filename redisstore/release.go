package redisstore

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// Release implements registry.SessionStore. Once the claim is gone, index entries that could not be removed are no
// failure: nobody finds the session through them, and readers remove them.
func (s *Store) Release(ctx context.Context, sess registry.Session) (bool, error) {
	b := s.conn.batch()
	c := s.release(b, sess.Ref(), sess.Pod)
	if err := b.run(ctx); err != nil {
		return false, unavailable("release", err)
	}
	left := make(removals)
	left.add(podSessionsKey(sess.Pod), podMember(sess.Key), sess.Generation)
	hash, current := releasedHash(c)
	if current {
		s.traces(sess.Key, hash, left)
	}
	b = s.conn.batch()
	left.into(b)
	if current {
		s.changed(b, sess.Tenant)
	}
	if err := b.run(ctx); err != nil {
		s.log.Warn("session released, some index entries left to be removed by readers",
			"session", sess.Key.Session, "error", err)
	}
	return current, nil
}

func (s *Store) release(b *batch, ref registry.Ref, pod string) *call {
	return b.eval(scriptRelease, sessionKeys(ref.Key), s.sessionTTL, pod, decimal(ref.Generation))
}

// releasedHash returns the hash of a released session, and whether the claim was current.
func releasedHash(released *call) (hash map[string]string, current bool) {
	answer := released.list()
	if len(answer) != 2 || toInt(answer[0]) != 1 {
		return nil, false
	}
	return toMap(answer[1]), true
}

// traces puts the index entries of a session with this hash on the list to remove.
func (s *Store) traces(key registry.Key, hash map[string]string, left removals) {
	was, err := parseSession(key, hash)
	if err != nil {
		s.log.Warn("session to be removed is not readable; its index entries go as they are read",
			"session", key.Session, "error", err)
		return
	}
	for _, index := range attributeIndexes(was) {
		left.add(index, key.Session, was.Generation)
	}
	if set := hash[fieldSet]; set != "" {
		left.add(membersIndex(key.Tenant, set), key.Session, was.Generation)
	}
}
