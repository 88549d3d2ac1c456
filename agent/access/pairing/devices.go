package pairing

import (
	"context"
	"errors"
	"slices"

	"github.com/farhand/farhand/registry"
)

// Devices returns a page of the paired devices that an approver may see, and the cursor of the next page, empty on the
// last. A page may have fewer than limit devices, even none, before the last.
func (s *Service) Devices(
	ctx context.Context, by Approver, after string, limit int,
) ([]registry.Credential, string, error) {
	q := registry.CredentialQuery{Tenant: by.Tenant, Kind: registry.CredentialDevice, After: after, Limit: limit}
	all, next, err := s.cfg.Store.Credentials(ctx, q)
	return slices.DeleteFunc(all, func(c registry.Credential) bool { return !by.Sees(c.User) }), next, err
}

// Device is a paired device with its tools.
type Device struct {
	registry.Credential
	registry.DeviceTools
}

// Pins returns the tools that were approved with a definition.
func (d Device) Pins() []registry.ApprovedTool {
	var all []registry.ApprovedTool
	for _, a := range d.Approved {
		if a.Hash != "" && a.Hash != hashRejected {
			all = append(all, a)
		}
	}
	return all
}

// Rejected returns the names of tools that the device must not offer.
func (d Device) Rejected() []string {
	var names []string
	for _, a := range d.Approved {
		if a.Hash == hashRejected {
			names = append(names, a.Name)
		}
	}
	return names
}

// Device returns a paired device by the id of its credential or by its device_id. Devices that the approver may not see
// are not found.
func (s *Service) Device(ctx context.Context, by Approver, id string) (Device, error) {
	c, err := s.find(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	tools, err := s.cfg.Store.DeviceTools(ctx, c.Tenant, c.ID)
	tools.Waiting = slices.DeleteFunc(tools.Waiting, func(t registry.ToolSpec) bool {
		hash, ok := pinOf(c.Approved, t.Name)
		return ok && (hash == t.Hash() || hash == hashRejected) // decided after the device registered it
	})
	tools.Pinned = slices.DeleteFunc(tools.Pinned, func(t registry.ToolSpec) bool {
		hash, _ := pinOf(c.Approved, t.Name)
		return hash != t.Hash()
	})
	return Device{c, tools}, err
}

func (s *Service) find(ctx context.Context, by Approver, id string) (registry.Credential, error) {
	c, err := s.cfg.Store.Credential(ctx, by.Tenant, id)
	if err != nil && !errors.Is(err, registry.CodeNotFound) {
		return c, err
	}
	if err == nil && c.Kind == registry.CredentialDevice && by.Sees(c.User) {
		return c, nil
	}
	paired, err := s.cfg.Store.PairedDevices(ctx, by.Tenant, id)
	if err != nil {
		return c, err
	}
	if len(paired) == 0 || !by.Sees(paired[0].User) {
		return c, errNoDevice()
	}
	return paired[0], nil
}

func errNoDevice() error {
	return registry.Errorf(registry.CodeNotFound, "No paired device has this id.")
}

// Rename changes the name of a paired device.
func (s *Service) Rename(ctx context.Context, by Approver, id, name string) (Device, error) {
	attributes := registry.Session{Name: name}
	if err := attributes.ValidateAttributes(); err != nil {
		return Device{}, err
	}
	d, err := s.Device(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	d.Credential, err = s.cfg.Store.UpdateCredential(ctx, d.Tenant, d.ID, func(c *registry.Credential) error {
		c.Name = name
		return nil
	})
	return d, gone(err)
}

// Revoke removes the credential of a paired device. The device's socket, on any pod, is closed soon.
func (s *Service) Revoke(ctx context.Context, by Approver, id string) error {
	c, err := s.find(ctx, by, id)
	if err != nil {
		return err
	}
	if _, err := s.cfg.Store.RevokeCredential(ctx, c.Tenant, c.ID); err != nil {
		return gone(err)
	}
	s.cfg.Log.Info("a paired device was revoked", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", nameOf(by.Identity))
	return s.cfg.Store.SetDeviceTools(ctx, c.Tenant, c.ID, registry.DeviceTools{})
}

// gone maps a device that was revoked meanwhile to errNoDevice.
func gone(err error) error {
	if errors.Is(err, registry.CodeNotFound) {
		return errNoDevice()
	}
	return err
}

// ApproveTools approves waiting tools by the hash of their definition, and rejects others by name. The hash must be
// that of the waiting definition, so an approver approves what it saw. A connected device soon registers its tools
// again, on any pod.
func (s *Service) ApproveTools(
	ctx context.Context, by Approver, id string, approve []registry.ApprovedTool, reject []string,
) (Device, error) {
	d, err := s.Device(ctx, by, id)
	if err != nil {
		return Device{}, err
	}
	for _, t := range approve {
		if err := checkScope(by, t.Name); err != nil {
			return Device{}, err
		}
		if !slices.ContainsFunc(d.Waiting, func(w registry.ToolSpec) bool {
			return w.Name == t.Name && w.Hash() == t.Hash
		}) {
			return Device{}, registry.Errorf(registry.CodeInvalidRequest,
				"approve: no tool %.80q with this hash waits. Look at what waits again: it may have changed.", t.Name)
		}
	}
	for _, name := range reject {
		if err := checkGlob(name); err != nil || isGlob(name) {
			return Device{}, registry.Errorf(registry.CodeInvalidRequest, "reject: %.80q is no name of a tool.", name)
		}
	}
	d.Credential, err = s.cfg.Store.UpdateCredential(ctx, d.Tenant, d.ID, func(c *registry.Credential) error {
		for _, name := range reject {
			c.Approved = pin(c.Approved, registry.ApprovedTool{Name: name, Hash: hashRejected})
		}
		for _, t := range approve {
			c.Approved = pin(c.Approved, t)
		}
		return nil
	})
	if err != nil {
		return Device{}, gone(err)
	}
	s.cfg.Log.Info("tools of a paired device were decided", "device", d.DeviceID, "credential", d.ID,
		"tenant", d.Tenant, "by", nameOf(by.Identity), "approved", len(approve), "rejected", len(reject))
	return s.Device(ctx, by, d.ID)
}
