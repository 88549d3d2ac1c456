package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// MemoryConfig says how long devices are remembered after they were last seen. Zero: they are not.
type MemoryConfig struct {
	Paired time.Duration // devices that their credential names
	Others time.Duration
}

const (
	maxNoted    = 20_000                // devices that wait to be written; others are written with their next change
	memoryBatch = 256                   // devices in one write
	memoryPause = 50 * time.Millisecond // gathers the changes of a device that connects
)

// deviceMemory writes which devices this pod has seen. It never blocks a connection: changes of one device within
// memoryPause are one write. It is safe for concurrent use.
type deviceMemory struct {
	core
	cfg    MemoryConfig
	signal chan struct{} // capacity 1

	mu    sync.Mutex
	noted map[string]registry.DeviceMemory // by tenant and DeviceKey
}

func newDeviceMemory(c core, cfg MemoryConfig) *deviceMemory {
	return &deviceMemory{
		core: c, cfg: cfg, signal: make(chan struct{}, 1), noted: make(map[string]registry.DeviceMemory),
	}
}

func (m *deviceMemory) life(s *registry.Session) time.Duration {
	if s.Bound {
		return m.cfg.Paired
	}
	return m.cfg.Others
}

// note remembers a session's device, with the tools it has now. A device that has not registered any is remembered once
// it has: it keeps its former tools until then.
func (m *deviceMemory) note(l *LocalSession, at time.Time) {
	l.mu.Lock()
	s, tools := l.session, l.tools.all()
	l.remembered = at
	l.mu.Unlock()
	key, life := s.DeviceKey(), m.life(&s)
	if key == "" || life <= 0 || len(tools) == 0 {
		return
	}
	s.Proofs, s.ReclaimableBy = nil, nil
	m.mu.Lock()
	defer m.mu.Unlock()
	name := s.Tenant + " " + key
	if _, known := m.noted[name]; !known && len(m.noted) >= maxNoted {
		return
	}
	m.noted[name] = registry.DeviceMemory{
		KnownDevice: registry.KnownDevice{Session: s, Tools: tools, LastSeen: at}, Life: life,
		Identity: l.conn.Owner().Identity,
	}
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// renew notes a connected device again before it would be forgotten.
func (m *deviceMemory) renew(l *LocalSession) {
	l.mu.Lock()
	last, life := l.remembered, m.life(&l.session)
	l.mu.Unlock()
	if now := time.Now(); now.Sub(last) > life/4 {
		m.note(l, now)
	}
}

// writeUntil writes until ctx ends, and then what is left.
func (m *deviceMemory) writeUntil(ctx context.Context) {
	for {
		select {
		case <-m.signal:
			select {
			case <-time.After(memoryPause):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		m.write()
		if ctx.Err() != nil {
			return
		}
	}
}

func (m *deviceMemory) write() {
	m.mu.Lock()
	batch := make([]registry.DeviceMemory, 0, len(m.noted))
	for _, d := range m.noted {
		batch = append(batch, d)
	}
	clear(m.noted)
	m.mu.Unlock()
	for some := range slices.Chunk(batch, memoryBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err := m.store.RememberDevices(ctx, some)
		cancel()
		if err != nil { // the next change, or refresh, writes them
			m.log.Warn("devices not remembered until their next change", "devices", len(some), "error", err)
		}
	}
}

// Known returns the known device that matches a target and offers a tool. It fails with CodeSessionNotFound if none is
// known, and with CodeToolNotFound if none of them offers the tool.
func (q *Queue) Known(
	ctx context.Context, tenant, tool string, target registry.Target,
) (registry.KnownDevice, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	known, any, err := q.knownWith(ctx, tenant, tool, target)
	if err == nil && !any { // a pod may be about to write a device that has just left
		if err = pause.For(ctx, 4*memoryPause); err == nil {
			known, any, err = q.knownWith(ctx, tenant, tool, target)
		}
	}
	if err != nil {
		return registry.KnownDevice{}, err
	}
	if !any {
		return registry.KnownDevice{}, registry.ErrUnknownDevice
	}
	switch len(known) {
	case 0:
		return registry.KnownDevice{}, registry.Errorf(registry.CodeToolNotFound,
			"The device sleeps, and did not offer the tool %q when it was last connected.", tool)
	case 1:
		return known[0], nil
	}
	entries := make([]registry.Entry, len(known))
	for i := range known {
		entries[i].Session = known[i].Session
	}
	several := registry.Errorf(registry.CodeAmbiguousTarget,
		"Several sleeping devices offer %q. Name one in target, or set the user's default device.", tool)
	several.Candidates = ambiguous(tool, entries).Candidates
	return registry.KnownDevice{}, several
}

// maxKnownPages is how many pages of known devices one call looks at.
const maxKnownPages = 2

// knownWith returns the known devices that match a target and offer a tool, at most maxCandidates or a page more. any
// reports whether any device matches. A device whose credential names the id of the target is the only match: others
// may have chosen the id.
func (q *Queue) knownWith(
	ctx context.Context, tenant, tool string, target registry.Target,
) (known []registry.KnownDevice, any bool, err error) {
	query := registry.KnownQuery{Tenant: tenant, Target: target, Limit: maxOneDevice}
	query.Bound = target.DeviceID != ""
	for range maxKnownPages {
		page, next, err := q.store.KnownDevices(ctx, query)
		if err != nil {
			return nil, false, err
		}
		any = any || len(page) > 0
		for _, d := range page {
			if _, offers := toolOf(d.Tools, tool); offers {
				known = append(known, d)
			}
		}
		query.Skip = next
		switch {
		case next == 0 && query.Bound && !any:
			query.Bound = false
		case next == 0 || len(known) >= maxCandidates:
			return known, any, nil
		}
	}
	return known, any, nil
}
