package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// sweepChunk is how many sessions of a dead pod are released with one pipeline.
const sweepChunk = 200

// Sweep implements registry.PodStore. It removes the lease of a dead pod last, so the next sweep continues an
// interrupted one.
func (s *Store) Sweep(ctx context.Context) (dead []registry.DeadPod, err error) {
	lapsed, err := s.leases(ctx, "lapsed")
	if err != nil {
		return nil, err
	}
	for _, pod := range lapsed {
		tenants := make(map[string]bool)
		swept, err := s.sweepPod(ctx, pod, tenants)
		if swept || len(tenants) > 0 { // after an error, the next sweep finds only the other sessions
			dead = append(dead, registry.DeadPod{Pod: pod, Tenants: slices.Collect(maps.Keys(tenants))})
		}
		if err != nil {
			return dead, err
		}
	}
	return dead, nil
}

// sweepPod releases the sessions of one pod, and adds their tenants. If the pod is alive and only late, its next
// heartbeat notices, and the pod restores its sessions. It reports whether nothing is left of the pod: sessions that a
// newer release wrote stay, with the lapsed lease, for a pod that can read them.
func (s *Store) sweepPod(ctx context.Context, pod string, tenants map[string]bool) (swept bool, err error) {
	for {
		// All pods notice a dead pod at the same moment, so each takes others of its sessions.
		some, err := s.conn.Do(ctx, "ZRANDMEMBER", podSessionsKey(pod), sweepChunk, "WITHSCORES")
		if err != nil {
			return false, err
		}
		members := some.Strings() // pairs of member and generation
		if len(members) == 0 {
			break
		}
		if n, err := s.sweepSome(ctx, pod, members, tenants); err != nil || n == 0 {
			return false, err
		}
	}
	pipe := s.conn.Pipeline()
	removed := pipe.Eval(scriptLeaseRemove, []string{podsKey}, pod)
	if err := pipe.Exec(ctx); err != nil || removed.Int() == 0 {
		return err == nil, err
	}
	pipe = s.conn.Pipeline()
	bus.Forget(pipe, pod)
	err = pipe.Exec(ctx)
	return err == nil, err
}

// sweepSome removes sessions of a pod from the indexes, releases them, and removes them from the pod's own list, in
// this order. After an interruption, the next sweep finds a session on that list, and its indexes in its hash. It
// returns how many it has removed: it leaves alone those that a newer release wrote.
func (s *Store) sweepSome(
	ctx context.Context, pod string, members []string, tenants map[string]bool,
) (removed int, err error) {
	own := make(removals)
	claims := make([]registry.Ref, 0, len(members)/2)
	for i := 0; i+1 < len(members); i += 2 {
		claims = append(claims, registry.Ref{
			Key: parsePodMember(members[i]), Generation: redisconn.Int(members[i+1]),
		})
	}
	claims, before, err := s.readClaims(ctx, pod, claims)
	if err != nil {
		return 0, err
	}
	if err := s.removeTraces(ctx, before); err != nil {
		return 0, err
	}
	late, err := s.releaseClaims(ctx, pod, claims, before, tenants)
	if err != nil {
		return 0, err
	}
	if err := s.removeTraces(ctx, late); err != nil {
		return 0, err
	}
	for _, ref := range claims {
		own.add(podSessionsKey(pod), podMember(ref.Key), ref.Generation)
	}
	pipe := s.conn.Pipeline()
	own.into(pipe)
	return len(claims), pipe.Exec(ctx)
}

// hashes are the stored hashes of sessions.
type hashes map[registry.Key]map[string]string

// readClaims returns the claims without those that a newer release wrote, and the hashes of those that are current.
func (s *Store) readClaims(
	ctx context.Context, pod string, claims []registry.Ref,
) (known []registry.Ref, current hashes, err error) {
	pipe := s.conn.Pipeline()
	reads := make([]*redisconn.Command, len(claims))
	for i, ref := range claims {
		reads[i] = pipe.Do("HGETALL", sessionKey(ref.Key))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	current = make(hashes, len(claims))
	for i, ref := range claims {
		hash := reads[i].Map()
		if s.conn.Forms().Check(redisconn.FormSession, hash[fieldForm]) != nil {
			continue
		}
		known = append(known, ref)
		if hash[fieldPod] == pod && hash[fieldGeneration] == decimal(ref.Generation) {
			current[ref.Key] = hash
		}
	}
	return known, current, nil
}

// releaseClaims ends the claims that are still current. It returns the hashes that have changed since they were read:
// their pod is only late, and wrote in between. removeTraces has added the others to the mirrors of what they offered.
// If more is expected of a session, because its previous connection offered it, releaseClaims adds it to all those
// mirrors. It adds the tenants of the claims that it ended, so that of all pods that sweep only one reports each.
func (s *Store) releaseClaims(
	ctx context.Context, pod string, claims []registry.Ref, before hashes, tenants map[string]bool,
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
		if current {
			tenants[ref.Key.Tenant] = true
		}
		if current && !maps.Equal(hash, before[ref.Key]) {
			late[ref.Key] = hash
		}
		if current && !slices.Equal(expected, []string{hash[fieldSet], hash[fieldDeviceID]}) {
			s.mirror(pipe, ref.Key.Session, mirrorsOf(ref.Key.Tenant, hash[fieldUserID], expected))
		}
	}
	return late, pipe.Exec(ctx)
}

// removeTraces removes sessions from the indexes that their hashes name, up to the generation of each. It first adds
// them to the mirrors, because their devices are expected back.
func (s *Store) removeTraces(ctx context.Context, sessions hashes) error {
	if len(sessions) == 0 {
		return nil
	}
	pipe := s.conn.Pipeline()
	removed, tenants := make(removals), make(map[string]bool)
	for key, hash := range sessions {
		indexes, upTo := s.indexesOf(key, hash)
		for _, index := range indexes {
			removed.add(index, key.Session, upTo)
		}
		tenants[key.Tenant] = true
		offered := []string{hash[fieldSet], hash[fieldDeviceID]}
		s.mirror(pipe, key.Session, mirrorsOf(key.Tenant, hash[fieldUserID], offered))
	}
	pipe.Then()
	removed.into(pipe)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	// A full Redis rejects the new versions, but not the sweep, which frees memory. The death of the pod has already
	// changed the versions.
	pipe = s.conn.Pipeline()
	s.changed(pipe, slices.Collect(maps.Keys(tenants))...)
	if err := pipe.Exec(ctx); err != nil {
		s.log.Warn("sessions of a dead pod removed, versions of listings not replaced", "error", err)
	}
	return nil
}

// The rest of this file collects stale index entries. The index of a set's sessions is only counted, so no reader
// notices an entry that its pod did not remove. That happens if the pod dies between two writes, or if Redis never gets
// the removal. So readers occasionally check a few entries of a few sets. A set that few sessions have is checked
// completely.
const (
	staleCheckInterval = 5 * time.Second
	staleCheckSets     = 50 // checked in one pass: more would delay the listing
	staleCheckSample   = 4  // entries checked per set
)

// sample is one entry of the index of a set.
type sample struct {
	set string
	key registry.Key
	gen string
}

// collectStale checks samples of the indexes of the tools' sets, and removes entries whose session has another set.
func (s *Store) collectStale(ctx context.Context, tenant string, tools []distinctTool) {
	all := make(map[string]bool)
	for _, t := range tools {
		for _, set := range t.sets {
			all[set] = true
		}
	}
	sets := slices.Collect(maps.Keys(all)) // in random order, different each time
	samples, err := s.samples(ctx, tenant, sets[:min(len(sets), staleCheckSets)])
	var stale []sample
	if err == nil {
		_, stale, err = s.lookUp(ctx, samples)
	}
	if err == nil && len(stale) > 0 {
		err = s.removeSamples(ctx, tenant, stale)
	}
	if err != nil {
		s.log.Debug("tool indexes not checked", "tenant", tenant, "error", err)
	}
}

func (s *Store) samples(ctx context.Context, tenant string, sets []string) ([]sample, error) {
	pipe := s.conn.Pipeline()
	members := make([]*redisconn.Command, len(sets))
	for i, set := range sets {
		members[i] = pipe.Do("ZRANDMEMBER", membersIndex(tenant, set), staleCheckSample, "WITHSCORES")
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var samples []sample
	for i, c := range members {
		flat := c.Strings()
		for n := 0; n+1 < len(flat); n += 2 {
			key := registry.Key{Tenant: tenant, Session: flat[n]}
			samples = append(samples, sample{set: sets[i], key: key, gen: decimal(redisconn.Int(flat[n+1]))})
		}
	}
	return samples, nil
}

// lookUp tells entries whose session has the set, under the generation of the entry, from stale ones.
func (s *Store) lookUp(ctx context.Context, samples []sample) (current, stale []sample, err error) {
	pipe := s.conn.Pipeline()
	owners := make([]*redisconn.Command, len(samples))
	for i, x := range samples {
		owners[i] = pipe.Do("HMGET", sessionKey(x.key), fieldGeneration, fieldSet, fieldForm)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, nil, err
	}
	for i, x := range samples {
		hash := owners[i].Strings()
		if len(hash) != 3 {
			return nil, nil, owners[i].ErrShape()
		}
		if s.conn.Forms().Check(redisconn.FormSession, hash[2]) != nil {
			continue // its set cannot be known
		}
		if slices.Equal(hash[:2], []string{x.gen, x.set}) {
			current = append(current, x)
		} else {
			stale = append(stale, x)
		}
	}
	return current, stale, nil
}

// removeSamples removes entries. A session that gets the set again meanwhile writes its hash before the index. So the
// sessions are read again after the removal, and current entries are restored.
func (s *Store) removeSamples(ctx context.Context, tenant string, stale []sample) error {
	removed := make(removals)
	for _, x := range stale {
		removed.add(membersIndex(tenant, x.set), x.key.Session, redisconn.Int(x.gen))
	}
	pipe := s.conn.Pipeline()
	removed.into(pipe)
	s.changed(pipe, tenant)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	again, _, err := s.lookUp(ctx, stale)
	pipe = s.conn.Pipeline()
	for _, x := range again {
		s.enter(pipe, membersIndex(tenant, x.set), x.gen, x.key.Session)
	}
	return errors.Join(err, pipe.Exec(ctx))
}

// throttle bounds how often something is done. It is safe for concurrent use.
type throttle struct {
	every time.Duration
	last  atomic.Int64 // ns since the epoch
}

// due reports whether it is time to run again. If so, the caller must run.
func (t *throttle) due() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(t.every) && t.last.CompareAndSwap(last, now)
}
