package ws

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
)

// connect stores the attributes of the device. Fields that it does not send stay as they are.
func (c *conn) connect(ctx context.Context, f *connectFrame) error {
	if f.SessionID != nil && *f.SessionID != "" && *f.SessionID != c.local.Session().Key.Session {
		_ = c.send(errorFrame(codeSessionOwnerMismatch, "session_id: this connection belongs to another session. "+
			"Use the session_id of the URL, or connect with this one there."))
		return CloseOwnerMismatch
	}
	if err := c.mayBe(f); err != nil {
		c.refuseDevice(err)
		return nil
	}
	if f.Labels != nil && !c.budget.takeLabels(f.Labels) {
		return &frameError{codeRateLimited,
			"labels: this session changed too many in too short a time; one a second is allowed. Nothing was changed."}
	}
	err := c.local.Update(ctx, func(s *registry.Session) {
		set(&s.DeviceName, f.DeviceName)
		if !s.Bound {
			set(&s.DeviceID, f.DeviceID)
		}
		set(&s.Platform, f.Platform)
		if f.Labels != nil {
			s.Labels = f.Labels
		}
		if f.Capabilities != nil {
			s.Capabilities = f.Capabilities
		}
	})
	if err != nil {
		return err
	}
	if err := c.mayBe(f); err != nil { // it was paired meanwhile
		c.refuseDevice(err)
		return nil
	}
	c.mu.Lock()
	c.version1 = f.Capabilities == nil
	if f.Capabilities != nil {
		c.wantsCancel = slices.Contains(f.Capabilities, registry.CapabilityCancel)
		c.wantsDrain = slices.Contains(f.Capabilities, registry.CapabilityDrain)
	}
	c.mu.Unlock()
	summary := c.summary
	c.summary = nil
	if err := c.send(connectedFrame(summary, c.server.limits)); err != nil {
		return err
	}
	c.showWaiting()
	return nil
}

// set takes over an optional field of a frame.
func set(field, value *string) {
	if value != nil {
		*field = *value
	}
}
