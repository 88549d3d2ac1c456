package routing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// downForReleases is a store that releases nothing for a while.
type downForReleases struct {
	*memory.Store
	down atomic.Bool
}

func (s *downForReleases) Release(ctx context.Context, of registry.Session, back time.Duration) (bool, error) {
	if s.down.Load() {
		return false, registry.StoreUnavailable("release", errors.New("down"))
	}
	return s.Store.Release(ctx, of, back)
}

// Devices that left while the store could not be told are gone soon after it can.
func TestFailedReleasesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downForReleases{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		store.down.Store(true)
		const sessions = 100
		for i := range sessions {
			l := connect(t, pod, deafConn{}, func(s *registry.Session) { s.Key.Session = fmt.Sprintf("s%d", i) })
			l.Close(t.Context())
		}
		back := connect(t, pod, deafConn{}, func(s *registry.Session) { s.Key.Session = "s0" }) // this one stays
		time.Sleep(3 * releasePause)
		store.down.Store(false)
		time.Sleep(2 * releasePause)
		left, _, err := store.List(t.Context(), registry.Query{Tenant: back.key.Tenant, Limit: 2 * sessions})
		if err != nil || len(left) != 1 || left[0].Session.Key != back.key {
			t.Errorf("%d sessions are left: %v, %v", len(left), left, err)
		}
		if n := len(pod.Hub.unreleased.all()); n != 0 {
			t.Errorf("the pod retries %d", n)
		}
		if n := pod.Hub.unreleased.slots.Held(back.key.Tenant); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}

// A tenant cannot take all the places of what is retried.
func TestUnreleasedAreShared(t *testing.T) {
	store := &downForReleases{Store: memory.New(memory.Options{})}
	store.down.Store(true)
	u := newUnreleased()
	wait := func(tenant string) error {
		return u.release(t.Context(), store, registry.Entry{
			Session: registry.Session{Key: registry.Key{Tenant: tenant, Session: "s"}},
		}, 0)
	}
	n := 0
	for n <= maxUnreleased && wait("hostile") == nil {
		n++
	}
	if n != maxUnreleased*3/4 {
		t.Errorf("one tenant takes %d of %d", n, maxUnreleased)
	}
	if err := wait("other"); err != nil {
		t.Errorf("no place is left for another tenant: %v", err)
	}
}
