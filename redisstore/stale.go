package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// This file collects stale index entries. The index of a set's sessions is only counted, so no reader would notice an
// entry that its pod did not remove, because it died between two writes or because Redis never got the removal. So
// readers now and then look at a few entries of a few sets. A set that few sessions have is checked completely.
const (
	staleCheckInterval = 5 * time.Second
	staleCheckSets     = 50 // looked at in one go: more would delay the listing
	staleCheckSample   = 4  // entries looked at per set
)

// sample is one entry of the index of a set.
type sample struct {
	set   string
	key   registry.Key
	gen   string
	owner *redisconn.Command // the session's generation and set
}

// collectStale looks at samples of the indexes of the tools' sets and removes entries whose session has another set.
func (s *Store) collectStale(ctx context.Context, tenant string, tools []distinctTool) {
	stale, err := s.staleSamples(ctx, tenant, someSets(tools))
	if err == nil && len(stale) > 0 {
		err = s.removeSamples(ctx, tenant, stale)
	}
	if err != nil {
		s.log.Debug("tool indexes not checked", "tenant", tenant, "error", err)
	}
}

// someSets returns a random choice of the sets the tools are in.
func someSets(tools []distinctTool) []string {
	all := make(map[string]bool)
	for _, t := range tools {
		for _, set := range t.sets {
			all[set] = true
		}
	}
	some := make([]string, 0, staleCheckSets)
	for set := range all { // in random order, different each time
		if len(some) == staleCheckSets {
			break
		}
		some = append(some, set)
	}
	return some
}

func (s *Store) staleSamples(ctx context.Context, tenant string, sets []string) ([]*sample, error) {
	pipe := s.conn.Pipeline()
	members := make([]*redisconn.Command, len(sets))
	for i, set := range sets {
		members[i] = pipe.Do("ZRANDMEMBER", membersIndex(tenant, set), staleCheckSample, "WITHSCORES")
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var samples []*sample
	for i, c := range members {
		flat := c.Strings()
		for n := 0; n+1 < len(flat); n += 2 {
			samples = append(samples, &sample{
				set: sets[i], gen: decimal(redisconn.Int(flat[n+1])),
				key: registry.Key{Tenant: tenant, Session: flat[n]},
			})
		}
	}
	if err := s.lookUp(ctx, samples); err != nil {
		return nil, err
	}
	stale := samples[:0]
	for _, x := range samples {
		if !x.holds() {
			stale = append(stale, x)
		}
	}
	return stale, nil
}

// lookUp reads what the sessions of the samples say now.
func (s *Store) lookUp(ctx context.Context, samples []*sample) error {
	pipe := s.conn.Pipeline()
	for _, x := range samples {
		x.owner = pipe.Do("HMGET", sessionKey(x.key), fieldGeneration, fieldSet)
	}
	return pipe.Exec(ctx)
}

// holds reports whether the session, under the generation of the entry, has the set.
func (x *sample) holds() bool {
	now := x.owner.Strings()
	return len(now) == 2 && now[0] == x.gen && now[1] == x.set
}

// removeSamples removes entries. A session that gets the set again at this moment writes its hash before the index, so
// the sessions are looked at once more after the removal.
func (s *Store) removeSamples(ctx context.Context, tenant string, stale []*sample) error {
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
	if err := s.lookUp(ctx, stale); err != nil {
		return err
	}
	pipe = s.conn.Pipeline()
	for _, x := range stale {
		if x.holds() {
			s.enter(pipe, membersIndex(tenant, x.set), x.gen, x.key.Session)
		}
	}
	return pipe.Exec(ctx)
}

// throttle bounds how often something is done. It is safe for concurrent use.
type throttle struct {
	every time.Duration
	last  atomic.Int64 // ns since the epoch
}

// due reports whether it is time to do it again, which the caller then does.
func (t *throttle) due() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return now-last >= int64(t.every) && t.last.CompareAndSwap(last, now)
}
