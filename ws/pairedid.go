package ws

import (
	"context"
	"errors"

	"github.com/farhand/farhand/registry"
)

// What a device is told that says it is a device that it is not.
var (
	errImpostor = errors.New(
		"device_id: the credential of this connection is another device's; leave device_id out, or pair again")
	errPairedID = errors.New(
		"device_id: a paired device has this id; connect with the credential of that device, or say another device_id")
)

// mayBe returns nil if the device of the connection may be the one that connect names: that of its credential or, if
// the credential is bound to none, one that nobody has paired. Otherwise the error is errImpostor or errPairedID, or it
// says why nobody knows. That nobody has paired an id is remembered until somebody pairs any.
func (c *conn) mayBe(f *connectFrame) error {
	if f.DeviceID == nil || *f.DeviceID == "" || *f.DeviceID == c.who.Device {
		return nil
	}
	if c.who.Device != "" {
		return errImpostor
	}
	pairings := c.server.pairings.Load()
	if c.server.cfg.Pairing == nil || c.unpaired == *f.DeviceID && c.unpairedAt == pairings {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	switch paired, err := c.server.cfg.Pairing.Paired(ctx, c.who.Tenant, *f.DeviceID); {
	case err != nil:
		return err
	case paired:
		return errPairedID
	}
	c.unpaired, c.unpairedAt = *f.DeviceID, pairings
	return nil
}

// refuseDevice ends the connection of a device that may not be the one it says it is, or of which nobody knows.
func (c *conn) refuseDevice(why error) {
	if errors.Is(why, errImpostor) || errors.Is(why, errPairedID) {
		c.log().Warn("device refused", "reason", why.Error())
		c.refuseSession(codeSessionOwnerMismatch, why.Error())
		return
	}
	c.log().Warn("device not looked up", "error", why)
	c.end(CloseUnavailable)
}

// deviceKey names a device of a tenant.
type deviceKey struct{ tenant, id string }

// devicesPaired ends the connections that say they are devices that were paired meanwhile, unless their credentials are
// bound to them. It returns at once.
func (s *Server) devicesPaired(changes []registry.CredentialChange) {
	paired := make(map[deviceKey]bool)
	for _, change := range changes {
		if change.Kind == registry.ChangeDevice && !change.Revoked {
			paired[deviceKey{change.Tenant, change.ID}] = true
		}
	}
	if len(paired) == 0 || s.cfg.Pairing == nil {
		return
	}
	s.pairings.Add(1) // first: a device that is not found now looks up again what it was told before
	if !s.tryAddTask() {
		return
	}
	go func() {
		defer s.taskDone()
		for _, c := range s.snapshot() {
			if key, ok := c.claims(); ok && paired[key] {
				c.checkPaired(key)
			}
		}
	}()
}

// claims returns the device that the connection says it is, if its credential does not.
func (c *conn) claims() (key deviceKey, ok bool) {
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	if local == nil || c.who.Device != "" {
		return deviceKey{}, false
	}
	return deviceKey{c.who.Tenant, local.Session().DeviceID}, true
}

// checkPaired ends the connection if the device that it says it is is paired: the change may be an old one.
func (c *conn) checkPaired(key deviceKey) {
	defer c.recoverPanic()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	paired, err := c.server.cfg.Pairing.Paired(ctx, key.tenant, key.id)
	if paired {
		err = errPairedID
	}
	if err != nil {
		c.refuseDevice(err)
	}
}
