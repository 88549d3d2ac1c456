package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// errEmptied is the cause of a failure when Redis was emptied and a session may exist without being stored.
var errEmptied = errors.New("the store was emptied, and not all pods have announced their sessions again")

// ownLease is what a store knows of the lease of its pod. If Redis lacks the lease before its time, everything else is
// lost, too.
type ownLease struct {
	mu    sync.Mutex
	pod   string
	until time.Time // when the lease lapses by itself, about
}

// renewed notes a renewal that was asked for at a time.
func (l *ownLease) renewed(pod string, asked time.Time, life time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pod, l.until = pod, asked.Add(life)
}

// forget notes that the pod gives its lease up.
func (l *ownLease) forget(pod string) {
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
