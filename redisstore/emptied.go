package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// errEmptied is the cause when nobody can say whether there is a session.
var errEmptied = errors.New("the store was emptied, and not all pods have announced their sessions again")

// ownLease is what a store knows of the lease its pod has: if that is missing before its time, so is everything else.
type ownLease struct {
	mu    sync.Mutex
	pod   string
	until time.Time // when the lease lapses by itself, about
}

// renewed notes a renewal. It reports whether the lease should have been there and was not.
func (l *ownLease) renewed(pod string, known bool, asked time.Time, life time.Duration) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = !known && l.pod == pod && asked.Before(l.until)
	l.pod, l.until = pod, asked.Add(life)
	return lost
}

// left notes that the pod gives its lease up.
func (l *ownLease) left(pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pod == pod {
		l.pod = ""
	}
}

// expected returns the pod whose lease must be there, empty if there is none.
func (l *ownLease) expected() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return ""
	}
	return l.pod
}

// markEmptied has all pods know that sessions are missing. The mark stays as long as a lease: the others find out within a
// tenth of that.
func (s *Store) markEmptied(ctx context.Context) error {
	b := s.conn.batch()
	b.do("SET", emptiedKey, "1", "PX", s.lease)
	return b.run(ctx)
}

// Whole implements registry.PodStore.
func (s *Store) Whole(ctx context.Context) error {
	pod := s.own.expected()
	b := s.conn.batch()
	mark := b.do("EXISTS", emptiedKey)
	var lease *call
	if pod != "" {
		lease = b.do("ZSCORE", podsKey, pod)
	}
	if err := b.run(ctx); err != nil {
		return unavailable("look whether the store is whole", err)
	}
	missing := false
	if lease != nil {
		_, known := lease.text()
		missing = !known
	}
	if missing || mark.int() == 1 {
		return registry.StoreUnavailable("look for a session", errEmptied)
	}
	return nil
}
