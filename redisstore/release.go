package redisstore

import (
	"context"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Release implements registry.SessionStore. Once the claim is gone, Release does not fail if members of indexes could
// not be removed: nobody finds the session through them, and readers remove them.
func (s *Store) Release(ctx context.Context, sess registry.Session, back time.Duration) (bool, error) {
	pipe := s.conn.SessionPipeline()
	c := s.release(pipe, sess.Ref(), sess.Pod, back)
	if err := pipe.Exec(ctx); err != nil {
		return false, redisconn.Unavailable("release", err)
	}
	hash, expected, current := releasedHash(c)
	pipe = s.conn.SessionPipeline()
	var indexes, mirrors []string
	if current {
		indexes, _ = s.indexesOf(sess.Key, hash)
		mirrors = mirrorsOf(sess.Tenant, hash[fieldUserID], expected)
	}
	s.leaveIndexes(pipe, sess.Key, indexes, mirrors, sess.Pod, sess.Generation)
	if current {
		s.changed(pipe, sess.Tenant)
	}
	if err := pipe.Exec(ctx); err != nil {
		s.log.Warn("session released, some index entries left to be removed by readers",
			"session", sess.Key.Session, "error", err)
	}
	return current, nil
}

// release adds the script that ends a claim, whose device is expected back for so long, to the pipeline.
func (s *Store) release(
	pipe *redisconn.Pipeline, ref registry.Ref, pod string, back time.Duration,
) *redisconn.Command {
	keys := append(sessionKeys(ref.Key), expectedKey(ref.Key))
	expected := min(max(back.Milliseconds(), 0), s.sessionTTL)
	return pipe.Eval(scriptRelease, keys, s.sessionTTL, pod, decimal(ref.Generation), expected)
}

// releasedHash returns the hash of a released session, what is expected of its next connection, and whether the claim
// was current.
func releasedHash(released *redisconn.Command) (hash map[string]string, expected []string, current bool) {
	answer := released.List()
	if len(answer) != 3 || redisconn.Int(answer[0]) != 1 {
		return nil, nil, false
	}
	return redisconn.Map(answer[1]), redisconn.Strings(answer[2]), true
}

// traces puts the index entries of a session with this hash on the list to remove.
func (s *Store) traces(key registry.Key, hash map[string]string, into removals) {
	indexes, upTo := s.indexesOf(key, hash)
	for _, index := range indexes {
		into.add(index, key.Session, upTo)
	}
}

// indexesOf returns the indexes that a session with this hash is in, and its generation.
func (s *Store) indexesOf(key registry.Key, hash map[string]string) (indexes []string, generation int64) {
	was, err := parseSession(key, hash)
	if err != nil {
		s.log.Warn("session to be removed is not readable; its index entries go as they are read",
			"session", key.Session, "error", err)
		return nil, 0
	}
	indexes = attributeIndexes(was)
	if set := hash[fieldSet]; set != "" {
		indexes = append(indexes, membersIndex(key.Tenant, set))
	}
	return indexes, was.Generation
}
