package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// liveSetAge is the maximum age of the known live pods when a reader uses them.
const liveSetAge = 250 * time.Millisecond

// Heartbeat implements registry.PodStore.
func (s *Store) Heartbeat(ctx context.Context, pod string) (known bool, err error) {
	asked := time.Now()
	expected := flag(s.own.expected() == pod)
	c, err := s.conn.Eval(ctx, scriptHeartbeat, []string{podsKey, emptiedKey}, pod, s.lease, s.podsTTL, expected)
	if err != nil {
		return false, redisconn.Unavailable("heartbeat", err)
	}
	if known = c.Int() == 1; !known {
		s.written.forget()
	}
	s.own.renewed(pod, asked, time.Duration(s.lease)*time.Millisecond)
	return known, nil
}

// Live implements registry.PodStore.
func (s *Store) Live(ctx context.Context) ([]string, error) {
	return s.leases(ctx, "live")
}

func (s *Store) leases(ctx context.Context, which string) ([]string, error) {
	c, err := s.conn.Eval(ctx, scriptLeases, []string{podsKey}, which)
	if err != nil {
		return nil, redisconn.Unavailable("read leases", err)
	}
	return c.Strings(), nil
}

// Leave implements registry.PodStore. If the pod could not release all its sessions, it leaves a lapsed lease behind,
// so that another pod cleans up.
func (s *Store) Leave(ctx context.Context, pod string) error {
	s.own.forget(pod)
	remaining, err := s.conn.Do(ctx, "ZCARD", podSessionsKey(pod))
	if err != nil {
		return redisconn.Unavailable("leave", err)
	}
	pipe := s.conn.Pipeline()
	if remaining.Int() > 0 {
		pipe.Do("ZADD", podsKey, "XX", "0", pod)
	} else {
		pipe.Do("ZREM", podsKey, pod)
	}
	bus.Forget(pipe, pod)
	err = pipe.Exec(ctx)
	s.live.forget()
	return redisconn.Unavailable("leave", err)
}

// liveSet caches for a moment which pods are live, so that not every reader of sessions asks Redis. Before it reports a
// pod as dead, it asks again. It is safe for concurrent use.
type liveSet struct {
	fetch func(context.Context) ([]string, error)
	age   time.Duration

	mu     sync.Mutex
	pods   map[string]bool
	asked  time.Time // pods was read at this time or later
	flight *liveFlight
}

// liveFlight is a read of the live pods in progress.
type liveFlight struct {
	asked time.Time
	done  chan struct{}
}

func newLiveSet(fetch func(context.Context) ([]string, error), age time.Duration) *liveSet {
	return &liveSet{fetch: fetch, age: age}
}

// has reports which of the pods are live. The map it returns must not be changed.
func (l *liveSet) has(ctx context.Context, pods []string) (map[string]bool, error) {
	now := time.Now()
	live, err := l.since(ctx, now.Add(-l.age))
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if !live[pod] {
			return l.since(ctx, now)
		}
	}
	return live, nil
}

// since returns the live pods as read at the given time or later. Concurrent callers share one read.
func (l *liveSet) since(ctx context.Context, oldest time.Time) (map[string]bool, error) {
	for {
		l.mu.Lock()
		if l.pods != nil && !l.asked.Before(oldest) {
			pods := l.pods
			l.mu.Unlock()
			return pods, nil
		}
		f := l.flight
		if f == nil {
			return l.ask(ctx) // unlocks
		}
		l.mu.Unlock()
		select {
		case <-f.done: // answered, failed, or older than needed: look again
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ask reads the live pods from the store. The caller holds the lock; ask releases it.
func (l *liveSet) ask(ctx context.Context) (map[string]bool, error) {
	f := &liveFlight{asked: time.Now(), done: make(chan struct{})}
	l.flight = f
	l.mu.Unlock()
	defer close(f.done)

	list, err := l.fetch(ctx)
	pods := make(map[string]bool, len(list))
	for _, pod := range list {
		pods[pod] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight = nil
	if err != nil {
		return nil, err
	}
	l.pods, l.asked = pods, f.asked
	return pods, nil
}

// forget makes the next reader ask the store again.
func (l *liveSet) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods = nil
}

// errEmptied is the cause of a failure when Redis was emptied, so that a session may exist without being stored.
var errEmptied = errors.New("the store was emptied, and not all pods have announced their sessions again")

// ownLease is what a store knows of the lease of its pod. If Redis lacks the lease before it lapses, everything else is
// also lost.
type ownLease struct {
	mu    sync.Mutex
	pod   string
	until time.Time // about when the lease lapses by itself
}

// renewed notes a renewal that was requested at the time asked.
func (l *ownLease) renewed(pod string, asked time.Time, life time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pod, l.until = pod, asked.Add(life)
}

// forget notes that the pod gives up its lease.
func (l *ownLease) forget(pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pod == pod {
		l.pod = ""
	}
}

// expected returns the pod whose lease must exist, empty if there is none.
func (l *ownLease) expected() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return ""
	}
	return l.pod
}

// Whole implements registry.PodStore.
func (s *Store) Whole(ctx context.Context) error {
	pod := s.own.expected()
	pipe := s.conn.Pipeline()
	mark := pipe.Do("EXISTS", emptiedKey)
	var lease *redisconn.Command
	if pod != "" {
		lease = pipe.Do("ZSCORE", podsKey, pod)
	}
	if err := pipe.Exec(ctx); err != nil {
		return redisconn.Unavailable("look whether the store is whole", err)
	}
	missing := false
	if lease != nil {
		_, known := lease.Text()
		missing = !known
	}
	if missing || mark.Int() == 1 {
		return registry.StoreUnavailable("look for a session", errEmptied)
	}
	return nil
}

// Version implements registry.Directory. It consists of a value and the names of the live pods. Every pod replaces the
// value after it has changed what listings show. The value expires some time after the last change, and the next reader
// makes a new one. So if a pod dies before it replaces the value, its change is overlooked only until then.
func (s *Store) Version(ctx context.Context, tenant string) (string, error) {
	live, err := s.live.since(ctx, time.Now().Add(-s.live.age))
	if err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	c, err := s.conn.Do(ctx, "GET", versionKey(tenant))
	if err != nil {
		return "", redisconn.Unavailable("version", err)
	}
	value, ok := c.Text()
	if !ok {
		made := rand.Text()
		c, err := s.conn.Do(ctx, "SET", versionKey(tenant), made, "NX", "GET", "PX", s.indexTTL)
		if err != nil {
			return "", redisconn.Unavailable("version", err)
		}
		if value, ok = c.Text(); !ok {
			value = made
		}
	}
	return value + " " + strings.Join(slices.Sorted(maps.Keys(live)), " "), nil
}

// changed adds a last part to the pipeline that replaces the versions of the tenants' listings.
func (s *Store) changed(pipe *redisconn.Pipeline, tenants ...string) {
	pipe.Then()
	for _, tenant := range tenants {
		pipe.Do("SET", versionKey(tenant), rand.Text(), "PX", s.indexTTL)
	}
}
