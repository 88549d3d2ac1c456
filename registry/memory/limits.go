package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

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
		// The charge that has to leave the window first: a window that was larger may hold more of them.
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
