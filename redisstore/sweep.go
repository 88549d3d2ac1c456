package redisstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

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
			return lapsed[:i], unavailable("sweep", err)
		}
	}
	return lapsed, nil
}

// sweepPod releases the sessions of one pod. The pod may be alive after all and only late; it then finds out with
// its next beat, and restores its sessions.
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
	b := s.conn.batch()
	buried := b.eval(scriptBury, []string{podsKey}, pod)
	if err := b.run(ctx); err != nil || buried.int() == 0 {
		return err
	}
	b = s.conn.batch()
	b.do("UNLINK", podRepliesKey(pod))
	return b.run(ctx)
}

// sweepable returns some of the sessions of a pod, as pairs of member and generation. All pods of a fleet notice a
// dead one at the same moment, so each starts at a place of its own.
func (s *Store) sweepable(ctx context.Context, pod string) ([]string, error) {
	key := podSessionsKey(pod)
	b := s.conn.batch()
	size := b.do("ZCARD", key)
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	start := int64(0)
	if rest := size.int() - sweepChunk; rest > 0 {
		start = rand.Int64N(rest + 1)
	}
	b = s.conn.batch()
	some := b.do("ZRANGE", key, start, start+sweepChunk-1, "WITHSCORES")
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	members := toStrings(some.cmd.Val())
	if len(members) == 0 && start > 0 { // somebody else was faster: from the beginning
		b = s.conn.batch()
		some = b.do("ZRANGE", key, 0, sweepChunk-1, "WITHSCORES")
		if err := b.run(ctx); err != nil {
			return nil, err
		}
		members = toStrings(some.cmd.Val())
	}
	return members, nil
}

// sweepSome releases sessions of a pod and removes what is left of them in the indexes, the pod's own list last: a
// sweep that breaks off in between is repeated by the next.
func (s *Store) sweepSome(ctx context.Context, pod string, members []string) error {
	b := s.conn.batch()
	calls := make(map[registry.Key]*call, len(members)/2)
	own := make(removals)
	for i := 0; i+1 < len(members); i += 2 {
		gen := toInt(members[i+1])
		own.add(podSessionsKey(pod), members[i], gen)
		key := parsePodMember(members[i])
		calls[key] = s.release(b, registry.Ref{Key: key, Generation: gen}, pod)
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	left, tenants := make(removals), make(map[string]bool)
	for key, c := range calls {
		s.traces(c, key, left)
		tenants[key.Tenant] = true
	}
	b = s.conn.batch()
	left.into(b)
	s.changed(b, slices.Collect(maps.Keys(tenants))...)
	if err := b.run(ctx); err != nil {
		return err
	}
	b = s.conn.batch()
	own.into(b)
	return b.run(ctx)
}
