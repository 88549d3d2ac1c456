package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

// liveSetAge is how old the pods known to be live may be, at most, when a reader uses them.
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

// Leave implements registry.PodStore. A pod that could not release all of its sessions leaves a lapsed lease
// behind instead of none, so that another pod cleans up.
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

// liveSet remembers for a moment which pods are live, so that not every reader of sessions asks Redis. Before it
// reports a pod as dead it asks again. It is safe for concurrent use.
type liveSet struct {
	fetch func(context.Context) ([]string, error)
	age   time.Duration

	mu     sync.Mutex
	pods   map[string]bool
	asked  time.Time // when pods was read, at the latest
	flight *liveFlight
}

// liveFlight is a request for the live pods that is running.
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

// ask reads the live pods from the store. It is called with the lock held and releases it.
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

// forget makes the next reader ask again.
func (l *liveSet) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods = nil
}
