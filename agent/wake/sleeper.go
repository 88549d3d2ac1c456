package wake

import (
	"context"
	"errors"

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

// records returns how a device is woken: no record if it has not registered that.
func (s *Service) records(ctx context.Context, of sleeper) ([]registry.WakeRecord, error) {
	if of.bound {
		return s.cfg.Store.WakesOf(ctx, of.Tenant, of.DeviceID)
	}
	r, err := s.cfg.Store.WakeOf(ctx, of.WakeRef)
	if errors.Is(err, registry.ErrNoWake) {
		return nil, nil
	}
	return []registry.WakeRecord{r}, err
}
