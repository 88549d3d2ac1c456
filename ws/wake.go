package ws

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Wakes keeps how devices are woken while they sleep. *wake.Service implements it.
type Wakes interface {
	Offer() wake.Offer
	Register(ctx context.Context, tenant, user, deviceID string, w registry.Wake) (registry.Wake, error)

	// ForgetOwn removes what the user registered for the device. If there is nothing, it does nothing.
	ForgetOwn(ctx context.Context, tenant, user, deviceID string) error
}

// wakeRegisteredFrame answers register_wake. Without a kind, nothing is registered.
func wakeRegisteredFrame(w registry.Wake) []byte {
	return encode(struct {
		Type          string            `json:"type"`
		Kind          registry.WakeKind `json:"kind,omitempty"`
		MinIntervalMS int64             `json:"min_interval_ms,omitempty"`
	}{typeWakeRegistered, w.Kind, w.MinIntervalMS})
}

// offersWake returns what connected tells a device about being woken, nil if it did not declare the capability or
// the gateway has no push service.
func (c *conn) offersWake() json.RawMessage {
	if c.server.cfg.Wakes == nil || !c.local.Session().Can(registry.CapabilityWake) {
		return nil
	}
	offer := c.server.cfg.Wakes.Offer()
	if len(offer.Kinds) == 0 {
		return nil
	}
	return encode(offer)
}

// registerWake stores how the device is woken while it sleeps, or forgets it.
func (c *conn) registerWake(ctx context.Context, f *registerWakeFrame) error {
	s := c.local.Session()
	switch {
	case c.server.cfg.Wakes == nil || !s.Can(registry.CapabilityWake):
		return fields.Invalid("register_wake: declare the capability wake in connect first.")
	case s.DeviceID == "":
		return fields.Invalid("register_wake: send a device_id in connect first, or pair the device.")
	case f.Wake == nil:
		return c.answerWake(registry.Wake{}, c.server.cfg.Wakes.ForgetOwn(ctx, s.Key.Tenant, s.UserID, s.DeviceID))
	}
	var w registry.Wake
	if err := json.Unmarshal(f.Wake, &w); err != nil {
		return fields.Invalid("wake: must be an object as docs/wake.md describes.")
	}
	w, err := c.server.cfg.Wakes.Register(ctx, s.Key.Tenant, s.UserID, s.DeviceID, w)
	return c.answerWake(w, err)
}

func (c *conn) answerWake(w registry.Wake, err error) error {
	text := registry.AsError(err)
	switch {
	case err == nil:
		return c.send(wakeRegisteredFrame(w))
	case errors.Is(err, registry.CodeInvalidRequest):
		return fields.Invalid("%s", text.Message)
	case errors.Is(err, registry.CodeForbidden):
		return fields.NewError(codeForbidden, text.Message)
	case errors.Is(err, registry.CodeRateLimited):
		return fields.NewError(codeRateLimited, text.Message)
	default:
		return fields.NewError(codeInternalError, "The registration was not stored: "+text.Message)
	}
}
