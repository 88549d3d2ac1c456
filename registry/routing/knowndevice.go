package routing

import (
	"context"
	"slices"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// Known returns the known device that matches a target and offers a tool. It fails with CodeSessionNotFound if none is
// known, and with CodeToolNotFound if none of them offers the tool.
func (q *Queue) Known(
	ctx context.Context, tenant, tool string, target registry.Target,
) (registry.KnownDevice, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	query := registry.KnownQuery{Tenant: tenant, Target: target, Limit: maxOneDevice}
	known, _, err := q.store.KnownDevices(ctx, query)
	if err == nil && len(known) == 0 { // a pod may be about to write a device that has just left
		if err = pause.For(ctx, 4*memoryPause); err == nil {
			known, _, err = q.store.KnownDevices(ctx, query)
		}
	}
	if err != nil {
		return registry.KnownDevice{}, err
	}
	if len(known) == 0 {
		return registry.KnownDevice{}, registry.ErrUnknownDevice
	}
	known = slices.DeleteFunc(known, func(d registry.KnownDevice) bool {
		_, offers := toolOf(d.Tools, tool)
		return !offers
	})
	if target.DeviceID != "" && len(known) > 1 { // a credential vouches for the device
		bound := slices.DeleteFunc(slices.Clone(known), func(d registry.KnownDevice) bool { return !d.Session.Bound })
		if len(bound) == 1 {
			known = bound
		}
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
