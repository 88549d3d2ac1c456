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

func (s *Store) Heartbeat(ctx context.Context, pod string) (known bool, err error) {
	asked := time.Now()
	expected := flag(s.own.expected() == pod)
	c, err := s.conn.Eval(ctx, scriptHeartbeat, []string{podsKey, emptiedKey},
		pod, s.lease, millis(2*max(s.opts.SessionTTL, s.opts.PodLease)), expected)
	if err != nil {
		return false, err
	}
	if known = c.Int() == 1; !known {
		s.written.forget()
	}
	s.own.renewed(pod, asked, time.Duration(s.lease)*time.Millisecond)
	return known, nil
}

func (s *Store) Live(ctx context.Context) ([]string, error) { return s.leases(ctx, "live") }

func (s *Store) leases(ctx context.Context, which string) ([]string, error) {
	c, err := s.conn.Eval(ctx, scriptLeases, []string{podsKey}, which)
	return c.Strings(), err
}

// Leave implements registry.PodStore. If the pod could not release all its sessions, it leaves a lapsed lease behind,
// so that another pod cleans up.
func (s *Store) Leave(ctx context.Context, pod string) error {
	s.own.forget(pod)
	remaining, err := s.conn.Do(ctx, "ZCARD", podSessionsKey(pod))
	if err != nil {
		return err
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
	return err
}

// liveSet caches for a moment which pods are live, so that not every reader of sessions asks Redis. Before it reports a
// pod as dead, it asks again. It is safe for concurrent use.
type liveSet struct {
	fetch func(context.Context) ([]string, error)
	age   time.Duration

	asking chan struct{} // has room for the one reader that asks the store
	mu     sync.Mutex
	pods   map[string]bool
	asked  time.Time // pods was read at this time or later
}

func newLiveSet(fetch func(context.Context) ([]string, error), age time.Duration) *liveSet {
	return &liveSet{fetch: fetch, age: age, asking: make(chan struct{}, 1)}
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
	if pods := l.known(oldest); pods != nil {
		return pods, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return nil, registry.StoreUnavailable("read leases", ctx.Err())
	}
	if pods := l.known(oldest); pods != nil { // another reader has asked meanwhile
		return pods, nil
	}
	asked := time.Now()
	list, err := l.fetch(ctx)
	if err != nil {
		return nil, err
	}
	pods := make(map[string]bool, len(list))
	for _, pod := range list {
		pods[pod] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods, l.asked = pods, asked
	return pods, nil
}

// known returns the live pods if they were read at the given time or later, otherwise nil.
func (l *liveSet) known(oldest time.Time) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.Before(oldest) {
		return nil
	}
	return l.pods
}

// forget makes the next reader ask the store again.
func (l *liveSet) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods = nil
}

// errEmptied is the cause of a failure when Redis was emptied, so that a session may exist without being stored.
var errEmptied = errors.New("the store was emptied, and some pods have not announced their sessions again yet")

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

func (s *Store) Whole(ctx context.Context) error {
	pod := s.own.expected()
	pipe := s.conn.Pipeline()
	mark, lease := pipe.Do("EXISTS", emptiedKey), pipe.Do("ZSCORE", podsKey, pod)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	if _, known := lease.Text(); pod != "" && !known || mark.Int() == 1 {
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
		return "", err
	}
	c, err := s.conn.Do(ctx, "GET", versionKey(tenant))
	if err != nil {
		return "", err
	}
	value, ok := c.Text()
	if !ok {
		made := rand.Text()
		c, err := s.conn.Do(ctx, "SET", versionKey(tenant), made, "NX", "GET", "PX", s.indexTTL)
		if err != nil {
			return "", err
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

// Codes in the first element of the answer of scriptPlaceClaim.
const (
	placeErased  = -1
	placeUnknown = 0
)

// ClaimPlace implements registry.PlaceStore. Redis cannot check the place and the leases of pods in one step. So if the
// owner of a place is dead, the place is claimed again, with the epoch of that owner.
func (s *Store) ClaimPlace(ctx context.Context, c registry.PlaceClaim) (registry.Place, error) {
	place, known, err := s.claimPlace(ctx, c, 0, false)
	if err != nil {
		return registry.Place{}, err
	}
	if !known {
		if err := s.Whole(ctx); err != nil {
			return registry.Place{}, err
		}
		if place, _, err = s.claimPlace(ctx, c, 0, true); err != nil {
			return registry.Place{}, err
		}
	}
	if place.Pod == c.Pod {
		return place, nil
	}
	live, err := s.live.has(ctx, []string{place.Pod})
	if err != nil || live[place.Pod] {
		return place, err
	}
	place, _, err = s.claimPlace(ctx, c, place.Epoch, true)
	return place, err
}

// claimPlace claims a place, unless an owner has it whose epoch is not dead.
func (s *Store) claimPlace(
	ctx context.Context, c registry.PlaceClaim, dead int64, create bool,
) (place registry.Place, known bool, err error) {
	_, conversation := c.Key.Conversation()
	answer, err := s.conn.Eval(ctx, scriptPlaceClaim, []string{placeKey(c.Key)}, millis(s.opts.PlaceTTL), c.Pod, c.Kind,
		decimal(c.Fence), flag(conversation), decimal(dead), flag(create), flag(c.Keep))
	if err != nil {
		return registry.Place{}, false, err
	}
	list := answer.List()
	switch {
	case len(list) == 1 && redisconn.Int(list[0]) == placeErased:
		return registry.Place{}, true, registry.ErrErased
	case len(list) == 1 && redisconn.Int(list[0]) == placeUnknown:
		return registry.Place{}, false, nil
	case len(list) != 6:
		return registry.Place{}, false, answer.ErrShape()
	}
	return registry.Place{
		Key: c.Key, Generation: redisconn.Int(list[1]), Pod: redisconn.Text(list[2]), Epoch: redisconn.Int(list[3]),
		Before: redisconn.Int(list[4]), Kept: redisconn.Int(list[5]) == 1,
	}, true, nil
}

func (s *Store) RefreshPlaces(ctx context.Context, places []registry.Place) (gone []registry.Place, err error) {
	pipe := s.conn.Pipeline()
	kept := make([]*redisconn.Command, len(places))
	for i, p := range places {
		kept[i] = pipe.Eval(scriptPlaceRefresh, []string{placeKey(p.Key)}, millis(s.opts.PlaceTTL), p.Pod,
			decimal(p.Generation), decimal(p.Epoch))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for i, p := range places {
		if kept[i].Int() == 0 {
			gone = append(gone, p)
		}
	}
	return gone, nil
}

func (s *Store) ReleasePlaces(ctx context.Context, places []registry.Place) error {
	pipe := s.conn.Pipeline()
	for _, p := range places {
		pipe.Eval(scriptPlaceRelease, []string{placeKey(p.Key)}, p.Pod, decimal(p.Epoch))
	}
	return pipe.Exec(ctx)
}

func (s *Store) PlaceGenerations(ctx context.Context, keys []registry.Key) ([]int64, error) {
	pipe := s.conn.Pipeline()
	answers := make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		place := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
		answers[i] = pipe.Do("HGET", placeKey(place), "generation")
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	generations := make([]int64, len(keys))
	for i, answer := range answers {
		if text, ok := answer.Text(); ok {
			generations[i] = redisconn.Int(text)
		}
	}
	return generations, nil
}
