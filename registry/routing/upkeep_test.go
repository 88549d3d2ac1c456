package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// slowSweeps is a store that cleans up as long as it is let.
type slowSweeps struct{ *memory.Store }

func (slowSweeps) Sweep(ctx context.Context) ([]registry.DeadPod, error) {
	<-ctx.Done()
	return nil, registry.StoreUnavailable("sweep", ctx.Err())
}

// A pod that cleans up after others keeps its own lease, however short that is.
func TestLongSweepDoesNotCostTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Second
		store := slowSweeps{memory.New(memory.Options{Limits: registry.Limits{PodLease: lease}})}
		startPod(t, store, "a", func(c *PodConfig) { c.PodLease = lease })
		for range 100 {
			time.Sleep(lease / 10)
			if live, err := store.Live(t.Context()); err != nil || !slices.Contains(live, "a") {
				t.Fatalf("live are %v, %v", live, err)
			}
		}
	})
}

// The tenants whose devices a dead pod had, and the operators, find its death in their feeds.
func TestDeathOfAPodIsInTheFeedsOfItsTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Second
		store := memory.New(memory.Options{Limits: registry.Limits{PodLease: lease}})
		if _, err := store.Heartbeat(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
		pods := map[string]string{"one": "dead", "two": "dead", "alive": "a"}
		for tenant, pod := range pods {
			for _, id := range []string{"s1", "s2"} {
				s := registry.Session{
					Key: registry.Key{Tenant: tenant, Session: id}, Pod: pod, Generation: registry.AnyHolder,
				}
				if _, err := store.Claim(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
		startPod(t, store, "a", func(c *PodConfig) { c.PodLease = lease })
		time.Sleep(10 * lease)
		synctest.Wait()
		for tenant, want := range map[string]int{registry.DefaultTenant: 1, "one": 1, "two": 1, "alive": 0, "new": 0} {
			feed, err := store.ReadActivity(t.Context(), tenant, "", 10, 0)
			found := slices.DeleteFunc(feed, func(a registry.Activity) bool {
				return a.Type != registry.ActivityPodDied || a.Reason != "dead" || a.Pod != "a"
			})
			if err != nil || len(found) != want {
				t.Errorf("%s: %d lines, want %d: %+v, %v", tenant, len(found), want, feed, err)
			}
		}
	})
}

// slowRestores is a store that lost all its sessions and takes its time to write each again, the first time in vain.
type slowRestores struct {
	*memory.Store
	mu       sync.Mutex
	lost     map[registry.Key]bool
	inVain   map[registry.Key]bool
	restored int
}

func (s *slowRestores) Refresh(_ context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if s.lost[e.Session.Key] {
			missing = append(missing, e.Session.Key)
		}
	}
	return missing, nil, nil
}

func (s *slowRestores) Restore(ctx context.Context, e registry.Entry) (registry.Session, error) {
	pause := time.NewTimer(100 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return registry.Session{}, registry.StoreUnavailable("restore", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inVain[e.Session.Key] {
		delete(s.inVain, e.Session.Key)
		return registry.Session{}, registry.StoreUnavailable("restore", errors.New("once"))
	}
	delete(s.lost, e.Session.Key)
	s.restored++
	return e.Session, nil
}

// A pod announces all its sessions again soon after the store was emptied, however many these are and though some take
// two attempts.
func TestManySessionsAreRestoredSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowRestores{Store: memory.New(memory.Options{}), lost: make(map[registry.Key]bool),
			inVain: make(map[registry.Key]bool)}
		pod := startPod(t, store, "a")
		const sessions = 2 * refreshBatch
		for i := range sessions {
			l := connect(t, pod, deafConn{}, func(s *registry.Session) { s.Key.Session = fmt.Sprintf("s%d", i) })
			store.lost[l.key] = true
			if i%50 == 0 {
				store.inVain[l.key] = true
			}
		}
		pod.refreshNow()
		time.Sleep(10 * time.Second)
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.restored != sessions {
			t.Errorf("%d of %d sessions restored", store.restored, sessions)
		}
	})
}
