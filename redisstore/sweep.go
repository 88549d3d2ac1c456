package redisstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// sweepChunk is how many sessions of a dead pod are released with one pipeline.
const sweepChunk = 200

// Sweep implements registry.PodStore. The lease of a dead pod is removed last: a sweep that is interrupted is taken
// up by the next one.
func (s *Store) Sweep(ctx context.Context) ([]string, error) {
	lapsed, err := s.leases(ctx, "lapsed")
	if err != nil {
		return nil, err
	}
	for i, pod := range lapsed {
		if err := s.sweepPod(ctx, pod); err != nil {
			return lapsed[:i], redisconn.Unavailable("sweep", err)
		}
	}
	return lapsed, nil
}

// sweepPod releases the sessions of one pod. If the pod is alive after all and only late, it notices with its next
// heartbeat, and restores its sessions.
func (s *Store) sweepPod(ctx context.Context, pod string) error {
	for {
		members, err := s.sweepable(ctx, pod)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			break
		}
		if err := s.sweepSome(ctx, pod, members); err != nil {
			return err
		}
	}
	pipe := s.conn.Pipeline()
	removed := pipe.Eval(scriptLeaseRemove, []string{podsKey}, pod)
	if err := pipe.Exec(ctx); err != nil || removed.Int() == 0 {
		return err
	}
	pipe = s.conn.Pipeline()
	bus.Forget(pipe, pod)
	return pipe.Exec(ctx)
}

// sweepable returns some of the sessions of a pod, as pairs of member and generation. All pods of a fleet notice a
// dead one at the same moment, so each starts at a place of its own.
func (s *Store) sweepable(ctx context.Context, pod string) ([]string, error) {
	key := podSessionsKey(pod)
	size, err := s.conn.Do(ctx, "ZCARD", key)
	if err != nil {
		return nil, err
	}
	start := int64(0)
	if rest := size.Int() - sweepChunk; rest > 0 {
		start = rand.Int64N(rest + 1)
	}
	some, err := s.conn.Do(ctx, "ZRANGE", key, start, start+sweepChunk-1, "WITHSCORES")
	if err != nil {
		return nil, err
	}
	members := some.Strings()
	if len(members) == 0 && start > 0 { // somebody else was faster: from the beginning
		some, err := s.conn.Do(ctx, "ZRANGE", key, 0, sweepChunk-1, "WITHSCORES")
		if err != nil {
			return nil, err
		}
		members = some.Strings()
	}
	return members, nil
}

// sweepSome removes sessions of a pod from the indexes, releases them, and takes them off the pod's own list, in this
// order: wherever it breaks off, the next sweep finds a session on that list, and in its hash the indexes it is in.
func (s *Store) sweepSome(ctx context.Context, pod string, members []string) error {
	own := make(removals)
	claims := make([]registry.Ref, 0, len(members)/2)
	for i := 0; i+1 < len(members); i += 2 {
		gen := redisconn.Int(members[i+1])
		own.add(podSessionsKey(pod), members[i], gen)
		claims = append(claims, registry.Ref{Key: parsePodMember(members[i]), Generation: gen})
	}
	before, err := s.readClaims(ctx, pod, claims)
	if err != nil {
		return err
	}
	if err := s.removeTraces(ctx, before); err != nil {
		return err
	}
	late, err := s.releaseClaims(ctx, pod, claims, before)
	if err != nil {
		return err
	}
	if err := s.removeTraces(ctx, late); err != nil {
		return err
	}
	pipe := s.conn.Pipeline()
	own.into(pipe)
	return pipe.Exec(ctx)
}

// hashes are what Redis has of sessions.
type hashes map[registry.Key]map[string]string

// readClaims returns the hashes of those claims that are still current.
func (s *Store) readClaims(ctx context.Context, pod string, claims []registry.Ref) (hashes, error) {
	pipe := s.conn.Pipeline()
	reads := make([]*redisconn.Command, len(claims))
	for i, ref := range claims {
		reads[i] = pipe.Do("HGETALL", sessionKey(ref.Key))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	current := make(hashes, len(claims))
	for i, ref := range claims {
		hash := reads[i].Map()
		if hash[fieldPod] == pod && hash[fieldGeneration] == decimal(ref.Generation) {
			current[ref.Key] = hash
		}
	}
	return current, nil
}

// releaseClaims ends the claims that are still current. It returns the hashes of those that are not any more as they
// were read before: their pod is only late, and wrote in between. removeTraces has put the others into the mirrors of
// what they offered; those of which more is expected, because the connection before offered it, go into all.
func (s *Store) releaseClaims(
	ctx context.Context, pod string, claims []registry.Ref, before hashes,
) (late hashes, err error) {
	pipe := s.conn.Pipeline()
	released := make([]*redisconn.Command, len(claims))
	for i, ref := range claims {
		released[i] = s.release(pipe, ref, pod, registry.ReturnWait)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	late = make(hashes)
	pipe = s.conn.Pipeline()
	for i, ref := range claims {
		hash, expected, current := releasedHash(released[i])
		if current && !maps.Equal(hash, before[ref.Key]) {
			late[ref.Key] = hash
		}
		if current && !slices.Equal(expected, []string{hash[fieldSet], hash[fieldDeviceID]}) {
			s.mirror(pipe, ref.Key.Session, mirrorsOf(ref.Key.Tenant, hash[fieldUserID], expected))
		}
	}
	return late, pipe.Exec(ctx)
}

// removeTraces removes sessions from the indexes their hashes name, up to the generation of each, once they are in the
// mirrors: their devices are expected back.
func (s *Store) removeTraces(ctx context.Context, sessions hashes) error {
	if len(sessions) == 0 {
		return nil
	}
	pipe := s.conn.Pipeline()
	removed, tenants := make(removals), make(map[string]bool)
	for key, hash := range sessions {
		s.traces(key, hash, removed)
		tenants[key.Tenant] = true
		offered := []string{hash[fieldSet], hash[fieldDeviceID]}
		s.mirror(pipe, key.Session, mirrorsOf(key.Tenant, hash[fieldUserID], offered))
	}
	pipe.Then()
	removed.into(pipe)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	// A full Redis refuses the new versions, but not the sweep, which makes room. That the pod is dead has changed the
	// versions by itself.
	pipe = s.conn.Pipeline()
	s.changed(pipe, slices.Collect(maps.Keys(tenants))...)
	if err := pipe.Exec(ctx); err != nil {
		s.log.Warn("sessions of a dead pod removed, versions of listings not replaced", "error", err)
	}
	return nil
}
