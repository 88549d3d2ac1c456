package memory

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// pairings are pairing requests, nonces, wrong codes, and definitions of paired devices.
type pairings struct {
	mu     sync.Mutex
	all    expiring[string, *pairing]
	used   expiring[string, *life] // digests of codes that were decided
	wrong  expiring[string, *guesses]
	nonces map[tenantKey][]nonce
	tools  expiring[tenantKey, *deviceTools]
	purges throttle
}

type pairing struct {
	life
	registry.Pairing
}

type guesses struct {
	life
	count int
}

type nonce struct {
	life
	text string
}

type deviceTools struct {
	life
	registry.DeviceTools
}

func newPairings() pairings {
	return pairings{
		all: make(expiring[string, *pairing]), used: make(expiring[string, *life]),
		wrong:  make(expiring[string, *guesses]),
		nonces: make(map[tenantKey][]nonce), tools: make(expiring[tenantKey, *deviceTools]),
	}
}

// lock takes the lock, and returns the time.
func (s *pairings) lock(m *Store) time.Time {
	s.mu.Lock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.all.purge(now)
		s.used.purge(now)
		s.wrong.purge(now)
		s.tools.purge(now)
		for key, all := range s.nonces {
			if all = fresh(all, now); len(all) == 0 {
				delete(s.nonces, key)
			} else {
				s.nonces[key] = all
			}
		}
	}
	return now
}

func fresh(all []nonce, now time.Time) []nonce {
	return slices.DeleteFunc(all, func(n nonce) bool { return !now.Before(n.expires) })
}

// CreatePairing implements registry.PairingStore.
func (m *Store) CreatePairing(
	_ context.Context, p registry.Pairing, ttl time.Duration,
) (registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	s.all.purge(now)
	ofSource, ofNetwork, left := 0, 0, registry.MaxPairings-len(s.all)
	for _, other := range s.all {
		if other.Source == p.Source {
			ofSource++
		}
		if p.Network != "" && other.Network == p.Network {
			ofNetwork++
		}
	}
	if left <= 0 || ofSource >= registry.MaxPairingsOfSource ||
		p.Network != "" && ofNetwork*registry.PairingsShare >= left {
		return registry.Pairing{}, registry.ErrPairingsFull
	}
	if p.CodeDigest != "" && (s.byCode(p.CodeDigest, now) != nil || s.used.get(p.CodeDigest, now) != nil) {
		return registry.Pairing{}, registry.ErrCodeTaken
	}
	p.CreatedAt, p.Decision = now.Truncate(time.Millisecond), nil
	p.ExpiresAt = p.CreatedAt.Add(ttl)
	s.all[p.ID] = &pairing{life{p.ExpiresAt}, p}
	return p, nil
}

// byCode returns the pending request with a code.
func (s *pairings) byCode(digest string, now time.Time) *pairing {
	for _, p := range s.all {
		if p.CodeDigest == digest && p.Decision == nil && now.Before(p.expires) {
			return p
		}
	}
	return nil
}

// Pairing implements registry.PairingStore.
func (m *Store) Pairing(_ context.Context, id string) (registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	if p := s.all.get(id, now); p != nil {
		return p.Pairing, nil
	}
	return registry.Pairing{}, registry.ErrNoPairing
}

// Pairings implements registry.PairingStore.
func (m *Store) Pairings(_ context.Context, tenant string) ([]registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	var found []registry.Pairing
	for _, p := range s.all {
		if p.Tenant == tenant && tenant != "" && p.Decision == nil && now.Before(p.expires) {
			found = append(found, p.Pairing)
		}
	}
	slices.SortFunc(found, func(a, b registry.Pairing) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return found, nil
}

// PairingByCode implements registry.PairingStore.
func (m *Store) PairingByCode(
	_ context.Context, codeDigest string, limits ...registry.Guess,
) (registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	counts := make([]int, len(limits))
	for i, g := range limits {
		if tried := s.wrong.get(g.Name, now); tried != nil {
			counts[i] = tried.count
		}
	}
	if full := registry.FullGuesses(limits, counts); len(full) > 0 {
		wait := time.Millisecond
		for _, g := range full {
			if tried := s.wrong.get(g.Name, now); tried != nil {
				wait = max(wait, tried.expires.Sub(now))
			}
		}
		return registry.Pairing{}, registry.ErrGuesses(wait)
	}
	if s.used.get(codeDigest, now) != nil {
		return registry.Pairing{}, registry.ErrPairingDecided
	}
	if p := s.byCode(codeDigest, now); p != nil && codeDigest != "" {
		return p.Pairing, nil
	}
	for _, g := range limits {
		tried := s.wrong.get(g.Name, now)
		if tried == nil {
			tried = &guesses{life{now.Add(g.Window)}, 0}
			s.wrong[g.Name] = tried
		}
		tried.count++
	}
	return registry.Pairing{}, registry.ErrNoPairing
}

// DecidePairing implements registry.PairingStore.
func (m *Store) DecidePairing(
	_ context.Context, id string, d registry.PairingDecision, ttl time.Duration,
) (registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	p := s.all.get(id, now)
	if p == nil {
		return registry.Pairing{}, registry.ErrNoPairing
	}
	if p.Decision != nil {
		return p.Pairing, registry.ErrPairingDecided
	}
	d.Tools = slices.Clone(d.Tools)
	p.Decision, p.expires = &d, now.Add(ttl)
	if p.CodeDigest != "" {
		s.used[p.CodeDigest] = &life{p.expires}
	}
	return p.Pairing, nil
}

// TakePairing implements registry.PairingStore.
func (m *Store) TakePairing(_ context.Context, id string) (registry.Pairing, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	p := s.all.get(id, now)
	if p == nil || p.Decision == nil || !p.Decision.Approved {
		return registry.Pairing{}, registry.ErrNoPairing
	}
	delete(s.all, id)
	return p.Pairing, nil
}

// PutNonce implements registry.PairingStore.
func (m *Store) PutNonce(_ context.Context, tenant, owner, text string, ttl time.Duration) error {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	key := tenantKey{tenant, owner}
	all := append(fresh(s.nonces[key], now), nonce{life{now.Add(ttl)}, text})
	s.nonces[key] = all[max(0, len(all)-registry.MaxNonces):]
	return nil
}

// TakeNonce implements registry.PairingStore.
func (m *Store) TakeNonce(_ context.Context, tenant, credential, text string) (bool, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	key := tenantKey{tenant, credential}
	all := fresh(s.nonces[key], now)
	i := slices.IndexFunc(all, func(n nonce) bool { return n.text == text })
	if i >= 0 {
		all = slices.Delete(all, i, i+1)
	}
	if len(all) == 0 { // invented owners leave no entry behind
		delete(s.nonces, key)
	} else {
		s.nonces[key] = all
	}
	return i >= 0, nil
}

// SetDeviceTools implements registry.PairingStore.
func (m *Store) SetDeviceTools(_ context.Context, tenant, credential string, t registry.DeviceTools) error {
	if t.Size() > registry.MaxDeviceDefinitions {
		return registry.ErrDefinitionsTooLarge
	}
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	t.Waiting, t.Pinned = slices.Clone(t.Waiting), slices.Clone(t.Pinned)
	s.tools[tenantKey{tenant, credential}] = &deviceTools{life{now.Add(registry.CredentialIdle)}, t}
	return nil
}

// DeviceTools implements registry.PairingStore.
func (m *Store) DeviceTools(_ context.Context, tenant, credential string) (registry.DeviceTools, error) {
	s := &m.pairings
	now := s.lock(m)
	defer s.mu.Unlock()
	known := s.tools.get(tenantKey{tenant, credential}, now)
	if known == nil {
		return registry.DeviceTools{}, nil
	}
	return registry.DeviceTools{
		Waiting: slices.Clone(known.Waiting), Pinned: slices.Clone(known.Pinned),
	}, nil
}
