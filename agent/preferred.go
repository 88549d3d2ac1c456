package agent

import (
	"cmp"
	"context"
	"errors"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Defaults knows the default devices of users. Every registry.Store is one.
type Defaults interface {
	// DefaultDevice returns the device id of a user's default. It fails with registry.ErrNoDefault if there is none.
	DefaultDevice(ctx context.Context, tenant, user string) (string, error)
}

// resolvePreferred finds the session of a call that several devices of one user match. If none is preferred, or the
// preferred one does not offer the tool now, it returns ambiguous.
func (i *Invoker) resolvePreferred(
	ctx context.Context, req *Request, target registry.Target, ambiguous error,
) (registry.Route, error) {
	target, err := i.preferred(ctx, req.Caller, target, ambiguous)
	if err != nil {
		return registry.Route{}, err
	}
	route, _, err := i.cfg.Router.ResolveNow(ctx, req.Caller.Tenant, req.Tool, target, req.Select)
	if err != nil {
		return registry.Route{}, ambiguous
	}
	return route, nil
}

// preferred narrows a target that several devices of one user match: to the only one whose app is in the foreground,
// else to the user's default device. If neither helps, it returns ambiguous. The user is the target's or the caller's.
func (i *Invoker) preferred(
	ctx context.Context, caller auth.Identity, target registry.Target, ambiguous error,
) (registry.Target, error) {
	user := cmp.Or(target.UserID, caller.Viewer())
	if user == "" || user == registry.NoUser || target.DeviceID != "" {
		return target, ambiguous
	}
	var open, own []registry.Candidate
	for _, c := range registry.AsError(ambiguous).Candidates {
		if c.UserID != user { // a device without a user may say anything
			continue
		}
		if own = append(own, c); c.Foreground {
			open = append(open, c)
		}
	}
	if len(open) == 1 {
		target.SessionID = open[0].SessionID
		return target, nil
	}
	if len(own) == 0 || i.cfg.Defaults == nil {
		return target, ambiguous
	}
	device, err := i.cfg.Defaults.DefaultDevice(ctx, caller.Tenant, user)
	switch {
	case errors.Is(err, registry.ErrNoDefault):
		return target, ambiguous
	case err != nil:
		return target, err
	}
	target.DeviceID, target.UserID = device, user
	return target, nil
}
