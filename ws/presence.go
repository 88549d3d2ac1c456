package ws

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/farhand/farhand/agent/wake"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// presence records whether the device's app is in the foreground. Calls of tools that need that are refused while it is
// in the background, and a user's device in the foreground is preferred to the user's other devices.
func (c *conn) presence(ctx context.Context, f *presenceFrame) error {
	s := c.local.Session()
	if !s.Can(registry.CapabilityPresence) {
		return fields.Invalid("presence: declare the capability presence in connect")
	}
	if s.Foreground != nil && *s.Foreground == f.Foreground {
		return nil
	}
	return c.local.Update(ctx, func(s *registry.Session) { s.Foreground = &f.Foreground })
}

// Defaults keeps the default devices of users. Every registry.Store is one.
type Defaults interface {
	// SetDefaultDevice replaces a user's default device.
	SetDefaultDevice(ctx context.Context, tenant, user, device string) error
}

// setDefault makes the device the default of its user.
func (c *conn) setDefault(ctx context.Context, _ *setDefaultFrame) error {
	s := c.local.Session()
	switch {
	case c.server.cfg.Defaults == nil:
		return fields.Invalid("set_default: this gateway keeps no default devices")
	case s.UserID == "" || s.UserID != c.who.User:
		return fields.Invalid("set_default: the credential of this connection names no user")
	case s.DeviceID == "":
		return fields.Invalid("set_default: this device has no device_id; send one in connect")
	}
	if err := c.server.cfg.Defaults.SetDefaultDevice(ctx, s.Tenant, s.UserID, s.DeviceID); err != nil {
		return fields.NewError(codeInternalError, "The default was not set: "+registry.AsError(err).Message)
	}
	return c.send(defaultSetFrame(s.DeviceID))
}

func defaultSetFrame(device string) []byte {
	return encode(struct {
		Type     string `json:"type"`
		DeviceID string `json:"device_id"`
	}{typeDefaultSet, device})
}

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
	case errors.Is(err, registry.CodeRateLimited):
		return fields.NewError(codeRateLimited, text.Message)
	default:
		return fields.NewError(codeInternalError, "The registration was not stored: "+text.Message)
	}
}
