package memory

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

type budget struct {
	life   // until it is full again
	tokens float64
	at     time.Time
}

func (m *Store) Spend(_ context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	return m.spend(tenant, name, n, b, false), nil
}

func (m *Store) Overdraw(_ context.Context, tenant, name string, n int64, b registry.Budget) error {
	m.spend(tenant, name, n, b, true)
	return nil
}

func (m *Store) spend(tenant, name string, n int64, b registry.Budget, overdraw bool) (wait time.Duration) {
	s, key := &m.budgets, tenantKey{tenant, name}
	now := s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
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

type windowKey struct {
	tenant string
	name   [sha256.Size]byte // digest of the window's
	period time.Duration
}

func keyOf(tenant string, w registry.Window) windowKey {
	return windowKey{tenant, sha256.Sum256([]byte(w.Name)), w.Period.Truncate(time.Millisecond)}
}

// window has the times of the last charges, oldest first.
type window struct {
	life
	times []time.Time
}

func (m *Store) Take(_ context.Context, tenant string, asked []registry.Window) (time.Duration, int, error) {
	if err := registry.CheckWindows(asked); err != nil {
		return 0, 0, err
	}
	s := &m.windows
	now := s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	var wait time.Duration
	full := 0
	for i, w := range asked {
		known := s.all.get(keyOf(tenant, w), now)
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
		key := keyOf(tenant, w)
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
		m.charged(key)
	}
	return 0, 0, nil
}

// briefWindow is the longest period whose charges a journal does not keep.
const briefWindow = 10 * time.Second

// charged has a window recorded soon. Calls wait for no disk, so a crash may forget the charges of the last second.
func (m *Store) charged(key windowKey) {
	if m.keeper == nil || key.period <= briefWindow {
		return
	}
	if m.unwritten == nil {
		m.unwritten = make(map[windowKey]struct{})
		signal(m.keeper.later)
	}
	m.unwritten[key] = struct{}{}
}

// writeWindows records the windows that were charged since it was called last.
func (m *Store) writeWindows() {
	c, err := m.keeper.begin()
	if err != nil {
		signal(m.keeper.later) // try again
		return
	}
	defer c.end()
	s := &m.windows
	now := s.lock(m.opts.Now, c)
	defer c.unlock(&s.mu)
	for key := range m.unwritten {
		if known := s.all.get(key, now); known != nil {
			c.put(kindWindow, key.record(), known.packed())
		}
	}
	m.unwritten = nil
}

// record returns the key of a window's record.
func (k windowKey) record() string { return key(k.tenant, string(k.name[:]), ordered(int64(k.period))) }

// packed returns the value of a window's record: the times, all but the first as distances.
func (w *window) packed() []byte {
	steps := make([]int64, len(w.times))
	last := int64(0)
	for i, at := range w.times {
		steps[i], last = at.UnixNano()-last, at.UnixNano()
	}
	return packed(nil, steps...)
}

// loadWindow takes a window into memory. One that is there has newer charges, which are written again.
func (m *Store) loadWindow(r Record) error {
	var k windowKey
	var name, period string
	err := split(r.Key, &k.tenant, &name, &period)
	if err == nil {
		err = numbers(period, (*int64)(&k.period))
	}
	if err != nil {
		return err
	}
	copy(k.name[:], name)
	s := &m.windows
	s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	if s.all[k] != nil {
		m.charged(k)
		return nil
	}
	w, at := new(window), int64(0)
	for value := r.Value; len(value) > 0; {
		var step int64
		if value, err = unpack(value, &step); err != nil {
			return err
		}
		at += step
		w.times = append(w.times, fromNanos(at))
	}
	if len(w.times) > 0 {
		w.expires = w.times[len(w.times)-1].Add(k.period)
		s.all[k] = w
	}
	return nil
}
