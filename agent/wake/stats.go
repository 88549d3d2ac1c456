package wake

import (
	"maps"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Asked is what became of a request to wake a device.
type Asked string

// What became of it.
const (
	Pushed       Asked = "pushed"       // a push was made; Stats.Pushes has its outcome
	Planned      Asked = "planned"      // a push is planned for later
	Unneeded     Asked = "unneeded"     // the device is connected, or no call waits for it
	Unregistered Asked = "unregistered" // the device has not registered how
	Dropped      Asked = "dropped"      // the pod had too many devices to wake
	Failed       Asked = "failed"       // the store failed
)

// AllAsked returns all values of Asked.
func AllAsked() []Asked { return []Asked{Pushed, Planned, Unneeded, Unregistered, Dropped, Failed} }

// Stats are a Service's counts since New.
type Stats struct {
	Asked  map[Asked]int64
	Pushes map[registry.WakeKind]map[Outcome]int64
}

func newStats() Stats {
	st := Stats{make(map[Asked]int64), make(map[registry.WakeKind]map[Outcome]int64)}
	for _, kind := range registry.WakeKinds() {
		st.Pushes[kind] = make(map[Outcome]int64)
	}
	return st
}

// Stats returns the counts.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := newStats()
	maps.Copy(st.Asked, s.stats.Asked)
	for kind, counts := range s.stats.Pushes {
		maps.Copy(st.Pushes[kind], counts)
	}
	return st
}

// Pools returns the pools that tenants share, by name.
func (s *Service) Pools() map[string]share.Stats {
	var pushes share.Stats
	for _, pool := range s.pushes {
		pushes = pushes.Plus(pool.Stats())
	}
	return map[string]share.Stats{"wakes": s.asked.Stats(), "pushes": pushes}
}
