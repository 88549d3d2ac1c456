package memory

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// Heartbeat implements registry.PodStore.
func (m *Store) Heartbeat(_ context.Context, pod string) (known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known = m.podLiveLocked(pod)
	m.pods[pod] = m.opts.Now().Add(leaseExpiry(m.opts.PodLease))
	return known, nil
}

// leaseExpiry is when a lease lapses after its last renewal. It is shorter than the configured lease, which is the
// promise to users: the rest of that is for finding the lapse and cleaning up.
func leaseExpiry(lease time.Duration) time.Duration { return lease * 4 / 5 }

func (m *Store) podLiveLocked(pod string) bool {
	expires, ok := m.pods[pod]
	return ok && m.opts.Now().Before(expires)
}

// Whole implements registry.PodStore. Nobody can empty this store.
func (m *Store) Whole(context.Context) error { return nil }

// Live implements registry.PodStore.
func (m *Store) Live(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.livePodsLocked(), nil
}

func (m *Store) livePodsLocked() []string {
	var live []string
	for pod := range m.pods {
		if m.podLiveLocked(pod) {
			live = append(live, pod)
		}
	}
	return live
}

// Sweep implements registry.PodStore. It also forgets what has expired.
func (m *Store) Sweep(context.Context) ([]string, error) {
	m.purgeCalls()
	m.purgeFeeds()
	m.purgeConversations()
	m.mu.Lock()
	defer m.mu.Unlock()
	var dead []string
	for pod := range m.pods {
		if !m.podLiveLocked(pod) {
			dead = append(dead, pod)
			delete(m.pods, pod)
		}
	}
	for _, of := range m.sessions.byTenant {
		for _, stored := range of {
			if slices.Contains(dead, stored.session.Pod) {
				m.forgetLocked(stored, registry.ReturnWait)
			}
		}
	}
	now := m.opts.Now()
	m.changes += int64(m.sessions.purge(now))
	m.gone.purge(now)
	m.goneLists.purge(now)
	for key := range m.formers {
		m.leaveLocked(key, "", "")
	}
	return dead, nil
}

// Leave implements registry.PodStore.
func (m *Store) Leave(_ context.Context, pod string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod)
	return nil
}
