package farhand

import (
	"context"
	"fmt"
	"slices"

	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
)

// openWakes builds what wakes sleeping devices.
func (g *Gateway) openWakes(store registry.Store) (err error) {
	g.wakes, err = wake.New(wake.Config{
		Settings: g.cfg.Wake, Store: store, AllowPrivate: g.cfg.PrivateURLs, Log: g.log,
		Needed: func(ctx context.Context, tenant, deviceID string) (wake.Need, error) {
			return neededFor(ctx, store, tenant, deviceID)
		},
		Queued: store.ScanQueued,
		Searches: func(ctx context.Context) (bool, error) {
			live, err := store.Live(ctx)
			return len(live) > 0 && slices.Min(live) == g.pod.ID(), err
		},
	})
	if err != nil {
		return fmt.Errorf("FARHAND_WAKE_: %w", err)
	}
	return nil
}

// neededTools is how many queued calls are read for the names of their tools.
const neededTools = 16

// neededFor reports which calls wait for a device that is not connected, or whose app is in the background.
func neededFor(ctx context.Context, store registry.Store, tenant, deviceID string) (need wake.Need, err error) {
	target := registry.Target{DeviceID: deviceID}
	connected, _, err := store.List(ctx, registry.Query{Tenant: tenant, Target: target, Limit: 1})
	if err != nil || len(connected) > 0 && !connected[0].Session.InBackground() {
		return need, err
	}
	known, _, err := store.KnownDevices(ctx, registry.KnownQuery{Tenant: tenant, Target: target})
	if err != nil {
		return need, err
	}
	for i := range known {
		ids, err := store.QueueOf(ctx, tenant, known[i].Session.DeviceKey(), neededTools)
		if err != nil {
			return need, err
		}
		need.Calls += len(ids)
		for _, id := range ids {
			rec, err := store.ReadCall(ctx, tenant, id)
			if err == nil && !slices.Contains(need.Tools, rec.Tool) {
				need.Tools = append(need.Tools, rec.Tool)
			}
		}
	}
	need.Wanted = need.Calls > 0
	return need, nil
}
