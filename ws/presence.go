package ws

import (
	"context"

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
