package wake

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// sleeper is a device to wake.
type sleeper struct {
	registry.WakeRef
	bound bool // its credential names it; the user is not known, and may not be the only one who registered the id
}

func sleeperOf(tenant, key string) sleeper {
	ref, bound := registry.WakeRefOf(tenant, key)
	return sleeper{ref, bound}
}

// maxPages is how many pages of devices with one id a search reads. Other users may have chosen the id.
const maxPages = 16

// record returns how a device is woken, or registry.ErrNoWake. If its credential names it, its user is that of the
// remembered device: no call waits for one that is not remembered.
func (s *Service) record(ctx context.Context, of sleeper) (registry.WakeRecord, error) {
	if !of.bound {
		return s.cfg.Store.WakeOf(ctx, of.WakeRef)
	}
	q := registry.KnownQuery{
		Tenant: of.Tenant, Target: registry.Target{DeviceID: of.DeviceID, Bound: true}, Limit: 1,
	}
	for range maxPages {
		known, next, err := s.cfg.Store.KnownDevices(ctx, q)
		switch {
		case err != nil:
			return registry.WakeRecord{}, err
		case len(known) > 0:
			of.User = known[0].Session.UserID
			return s.cfg.Store.WakeOf(ctx, of.WakeRef)
		case next == 0:
			return registry.WakeRecord{}, registry.ErrNoWake
		}
		q.Skip = next
	}
	return registry.WakeRecord{}, registry.ErrNoWake
}
