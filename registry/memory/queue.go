package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// queues are the calls that wait for their devices. The zero value is empty.
type queues struct {
	mu      sync.Mutex
	tenants map[string]*tenantQueues
}

type tenantQueues struct {
	calls    map[string]*queuedCall
	devices  map[string][]*queuedCall // in order; none of them is empty
	sums     registry.QueueBound
	identity map[string]registry.QueueBound
}

type queuedCall struct {
	registry.QueuedCall
	due time.Time // when DueQueued returns it
}

// of returns the queues of a tenant. The lock must be held.
func (q *queues) of(tenant string) *tenantQueues {
	t := q.tenants[tenant]
	if t == nil {
		t = &tenantQueues{
			calls: make(map[string]*queuedCall), devices: make(map[string][]*queuedCall),
			identity: make(map[string]registry.QueueBound),
		}
		if q.tenants == nil {
			q.tenants = make(map[string]*tenantQueues)
		}
		q.tenants[tenant] = t
	}
	return t
}

// full returns the bound that one more call would exceed; empty: none.
func (t *tenantQueues) full(c *registry.QueuedCall, b registry.QueueBounds) string {
	exceeds := func(held, bound registry.QueueBound) bool {
		return held.Calls+1 > bound.Calls || held.Bytes+int64(len(c.Request)) > bound.Bytes
	}
	var device, own registry.QueueBound
	for _, other := range t.devices[c.Device] {
		device.Calls, device.Bytes = device.Calls+1, device.Bytes+int64(len(other.Request))
		if other.Identity == c.Identity {
			own.Calls, own.Bytes = own.Calls+1, own.Bytes+int64(len(other.Request))
		}
	}
	switch {
	case exceeds(device, b.Device):
		return "device"
	case c.Identity != "" && own.Calls > 0 && exceeds(own, b.OfDevice(c)):
		return "share"
	case c.Identity != "" && exceeds(t.identity[c.Identity], b.Identity):
		return "identity"
	case exceeds(t.sums, b.Tenant):
		return "tenant"
	}
	return ""
}

// count adds n calls like c to the sums.
func (t *tenantQueues) count(c *queuedCall, n int64) {
	bytes := n * int64(len(c.Request))
	t.sums.Calls, t.sums.Bytes = t.sums.Calls+n, t.sums.Bytes+bytes
	if c.Identity == "" {
		return
	}
	sum := t.identity[c.Identity]
	sum.Calls, sum.Bytes = sum.Calls+n, sum.Bytes+bytes
	if t.identity[c.Identity] = sum; sum.Calls == 0 {
		delete(t.identity, c.Identity)
	}
}

// position returns the position of a call, from 1 on; zero: it is not there.
func (t *tenantQueues) position(device, callID string) int {
	return 1 + slices.IndexFunc(t.devices[device], func(c *queuedCall) bool { return c.CallID == callID })
}

// Enqueue implements registry.QueueStore.
func (m *Store) Enqueue(
	_ context.Context, c registry.QueuedCall, life time.Duration, b registry.QueueBounds,
) (int, time.Time, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	t := m.queues.of(c.Tenant)
	if known := t.calls[c.CallID]; known != nil {
		return t.position(known.Device, c.CallID), known.Expires, nil
	}
	if bound := t.full(&c, b); bound != "" {
		return 0, time.Time{}, registry.QueueFull(bound)
	}
	c.Since = m.opts.Now().UTC().Truncate(time.Millisecond)
	c.Expires, c.Request = c.Since.Add(life), slices.Clone(c.Request)
	added := &queuedCall{c, c.Expires}
	t.calls[c.CallID], t.devices[c.Device] = added, append(t.devices[c.Device], added)
	t.count(added, 1)
	return len(t.devices[c.Device]), c.Expires, nil
}

// QueueHead implements registry.QueueStore.
func (m *Store) QueueHead(_ context.Context, tenant, device string) (registry.QueuedCall, bool, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	if waiting := m.queues.of(tenant).devices[device]; len(waiting) > 0 {
		return waiting[0].QueuedCall, true, nil
	}
	return registry.QueuedCall{}, false, nil
}

// QueuePosition implements registry.QueueStore.
func (m *Store) QueuePosition(_ context.Context, tenant, device, callID string) (int, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	return m.queues.of(tenant).position(device, callID), nil
}

// QueueOf implements registry.QueueStore.
func (m *Store) QueueOf(_ context.Context, tenant, device string, limit int) (ids []string, err error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	waiting := m.queues.of(tenant).devices[device]
	for _, c := range waiting[:min(len(waiting), limit)] {
		ids = append(ids, c.CallID)
	}
	return ids, nil
}

// Waiting implements registry.QueueStore.
func (m *Store) Waiting(_ context.Context, tenant string, devices ...string) ([]bool, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	waiting := make([]bool, len(devices))
	for i, device := range devices {
		waiting[i] = len(m.queues.of(tenant).devices[device]) > 0
	}
	return waiting, nil
}

// Dequeue implements registry.QueueStore.
func (m *Store) Dequeue(_ context.Context, tenant, _, callID string) (bool, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	return m.queues.of(tenant).remove(callID), nil
}

func (t *tenantQueues) remove(callID string) bool {
	c := t.calls[callID]
	if c == nil {
		return false
	}
	delete(t.calls, callID)
	t.count(c, -1)
	rest := slices.DeleteFunc(t.devices[c.Device], func(other *queuedCall) bool { return other == c })
	if t.devices[c.Device] = rest; len(rest) == 0 {
		delete(t.devices, c.Device)
	}
	return true
}

// DueQueued implements registry.QueueStore.
func (m *Store) DueQueued(_ context.Context, limit int, again time.Duration) (due []registry.QueuedCall, err error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	now := m.opts.Now()
	for tenant, t := range m.queues.tenants {
		if len(t.calls) == 0 {
			delete(m.queues.tenants, tenant)
		}
		for _, c := range t.calls {
			if len(due) < limit && !now.Before(c.due) {
				c.due = now.Add(again)
				listed := c.QueuedCall
				listed.Request = nil
				due = append(due, listed)
			}
		}
	}
	return due, nil
}

// ScanQueued implements registry.QueueStore. A cursor names the last device that was returned.
func (m *Store) ScanQueued(_ context.Context, cursor string, limit int) ([]registry.QueuedCall, string, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	last := make(map[string]*queuedCall)
	var names []string
	for tenant, t := range m.queues.tenants {
		for device, waiting := range t.devices {
			if name := tenant + " " + device; name > cursor {
				names, last[name] = append(names, name), waiting[len(waiting)-1]
			}
		}
	}
	slices.Sort(names)
	next := ""
	if len(names) > limit {
		names = names[:limit]
		next = names[limit-1]
	}
	calls := make([]registry.QueuedCall, len(names))
	for i, name := range names {
		calls[i] = last[name].QueuedCall
		calls[i].Request = nil
	}
	return calls, next, nil
}

// QueueStats implements registry.QueueStore.
func (m *Store) QueueStats(context.Context) (map[string]registry.QueueStats, error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	all, now := make(map[string]registry.QueueStats), m.opts.Now()
	for tenant, t := range m.queues.tenants {
		stats := registry.QueueStats{Calls: t.sums.Calls, Bytes: t.sums.Bytes}
		next := time.Time{}
		for _, c := range t.calls {
			if next.IsZero() || c.Expires.Before(next) {
				next, stats.Oldest = c.Expires, now.Sub(c.Since)
			}
		}
		all[tenant] = stats
	}
	return all, nil
}

// EraseQueued implements registry.QueueStore.
func (m *Store) EraseQueued(_ context.Context, tenant, identity string) (erased []string, err error) {
	m.queues.mu.Lock()
	defer m.queues.mu.Unlock()
	t := m.queues.of(tenant)
	for id, c := range t.calls {
		if c.Identity == identity {
			erased = append(erased, id)
		}
	}
	for _, id := range erased {
		t.remove(id)
	}
	return erased, nil
}
