package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// blobs are the blobs of all tenants.
type blobs struct {
	mu  sync.Mutex
	all expiring[string, *storedBlob] // by digest
}

type storedBlob struct {
	life
	registry.Blob
	dropped bool // hidden, but still counted
}

// live returns a blob that is neither expired nor dropped, or nil. The caller holds the lock.
func (s *blobs) live(digest string, now time.Time) *storedBlob {
	if b := s.all.get(digest, now); b != nil && !b.dropped {
		return b
	}
	return nil
}

// ReserveBlob implements registry.BlobStore.
func (m *Store) ReserveBlob(_ context.Context, b registry.Blob, limit int64, ttl time.Duration) error {
	s, now := &m.blobs, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.purge(now)
	count, own, tenant, session := 0, 0, b.Size, b.Size
	for _, other := range s.all {
		if other.Tenant != b.Tenant {
			continue
		}
		count, tenant = count+1, tenant+other.Size
		if other.SessionID == b.SessionID {
			own, session = own+1, session+other.Size
		}
	}
	if count >= registry.MaxBlobs || own >= registry.MaxBlobs/registry.BlobShare || tenant > limit ||
		session > limit/registry.BlobShare {
		return registry.ErrManyBlobs
	}
	b.State = registry.BlobOpen
	s.all[b.Digest] = &storedBlob{life: life{now.Add(ttl)}, Blob: b}
	return nil
}

// TakeBlob implements registry.BlobStore.
func (m *Store) TakeBlob(_ context.Context, digest string) (registry.Blob, error) {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live(digest, m.opts.Now())
	if b == nil || b.State != registry.BlobOpen {
		return registry.Blob{}, registry.ErrNoBlob
	}
	b.State = registry.BlobTaken
	return b.Blob, nil
}

// FillBlob implements registry.BlobStore.
func (m *Store) FillBlob(_ context.Context, digest string, ttl time.Duration) error {
	s, now := &m.blobs, m.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live(digest, now)
	if b == nil || b.State != registry.BlobTaken {
		return registry.ErrNoBlob
	}
	b.State, b.life = registry.BlobFilled, life{now.Add(ttl)}
	return nil
}

// ReadBlob implements registry.BlobStore.
func (m *Store) ReadBlob(_ context.Context, digest string) (registry.Blob, error) {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.live(digest, m.opts.Now()); b != nil {
		return b.Blob, nil
	}
	return registry.Blob{}, registry.ErrNoBlob
}

// DropBlob implements registry.BlobStore.
func (m *Store) DropBlob(_ context.Context, digest string) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live(digest, m.opts.Now()) != nil {
		delete(s.all, digest)
	}
	return nil
}

// DropBlobsOf implements registry.BlobStore.
func (m *Store) DropBlobsOf(_ context.Context, key registry.Key) error {
	s := &m.blobs
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.all {
		b.dropped = b.dropped || b.Tenant == key.Tenant && b.SessionID == key.Session
	}
	return nil
}

// budgets are the budgets that are not full. A full budget needs no entry.
type budgets struct {
	mu     sync.Mutex
	all    expiring[tenantKey, *budget]
	purges throttle
}

type budget struct {
	life   // until it is full again
	tokens float64
	at     time.Time
}

// Spend implements registry.BudgetStore.
func (m *Store) Spend(_ context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	return m.spend(tenant, name, n, b, false), nil
}

// Overdraw implements registry.BudgetStore.
func (m *Store) Overdraw(_ context.Context, tenant, name string, n int64, b registry.Budget) error {
	m.spend(tenant, name, n, b, true)
	return nil
}

func (m *Store) spend(tenant, name string, n int64, b registry.Budget, overdraw bool) (wait time.Duration) {
	s := &m.budgets
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := m.opts.Now(), tenantKey{tenant, name}
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	tokens, wanted := float64(b.Burst()), float64(min(n, b.Burst()))
	if known := s.all.get(key, now); known != nil {
		tokens = min(tokens, known.tokens+float64(now.Sub(known.at).Milliseconds())*b.Rate())
	}
	if tokens < wanted && !overdraw {
		return time.Duration((wanted-tokens)/b.Rate()+1) * time.Millisecond
	}
	tokens = max(tokens-wanted, -float64(b.Burst()))
	s.all[key] = &budget{life{now.Add(2 * b.Over)}, tokens, now} // from one burst in deficit to full
	return 0
}

// windows are the sliding windows that have a charge.
type windows struct {
	mu     sync.Mutex
	all    expiring[windowKey, *window]
	purges throttle
}

type windowKey struct {
	tenant, name string
	period       time.Duration
}

// window has the times of the last charges, oldest first.
type window struct {
	life
	times []time.Time
}

// Take implements registry.LimitStore.
func (m *Store) Take(_ context.Context, tenant string, asked []registry.Window) (time.Duration, int, error) {
	if err := registry.CheckWindows(asked); err != nil {
		return 0, 0, err
	}
	s := &m.windows
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
	}
	var wait time.Duration
	full := 0
	for i, w := range asked {
		known := s.all.get(windowKey{tenant, w.Name, w.Period.Truncate(time.Millisecond)}, now)
		if known == nil || len(known.times) < w.Limit {
			continue
		}
		// This charge must leave the window first: a window that was larger may hold more of them.
		leaving := known.times[len(known.times)-w.Limit]
		if left := leaving.Add(w.Period.Truncate(time.Millisecond)).Sub(now); left > wait {
			wait, full = left, i
		}
	}
	if wait > 0 {
		return wait, full, nil
	}
	for _, w := range asked {
		key := windowKey{tenant, w.Name, w.Period.Truncate(time.Millisecond)}
		known := s.all.get(key, now)
		if known == nil {
			known = new(window)
			s.all[key] = known
		}
		known.times = append(known.times, now)
		if n := len(known.times) - w.Limit; n > 0 {
			known.times = slices.Delete(known.times, 0, n)
		}
		known.expires = now.Add(key.period)
	}
	return 0, 0, nil
}
