package farhand

import (
	"context"
	"fmt"

	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
)

// openWakes builds what wakes sleeping devices.
func (g *Gateway) openWakes(store registry.Store) (err error) {
	g.wakes, err = wake.New(wake.Config{
		Settings: g.cfg.Wake, Store: store, AllowPrivate: g.cfg.PrivateURLs, Log: g.log,
		Needed: func(ctx context.Context, tenant, deviceID string) (wake.Need, error) {
			connected, _, err := store.List(ctx, registry.Query{
				Tenant: tenant, Target: registry.Target{DeviceID: deviceID}, Limit: 1,
			})
			return wake.Need{Wanted: len(connected) == 0}, err
		},
	})
	if err != nil {
		return fmt.Errorf("FARHAND_WAKE_: %w", err)
	}
	return nil
}

// WakeDevice wakes a device that sleeps, if it has registered how (docs/wake.md). It does not block. A device that is
// connected, or that another pod wakes already, gets no push.
func (g *Gateway) WakeDevice(ctx context.Context, tenant, deviceID string) {
	g.wakes.Wake(ctx, tenant, deviceID)
}
