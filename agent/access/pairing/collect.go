package pairing

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// State is how far a request is.
type State string

// The states.
const (
	StatePending  State = "pending"
	StateRejected State = "rejected"
	StateApproved State = "approved" // the credential comes with it, once
)

// StateOf returns the state of a request.
func StateOf(p registry.Pairing) State {
	switch {
	case p.Decision == nil:
		return StatePending
	case p.Decision.Approved:
		return StateApproved
	default:
		return StateRejected
	}
}

// Collected is what a device is told of its request.
type Collected struct {
	State      State
	Credential string // of StateApproved; nobody is told it again
	DeviceID   string
	Name       string
}

// Collect tells a device whether it is paired, by the secret of its request. Whoever asks first after the approval gets
// the credential, and the request is gone. If the credential cannot be stored, or another device with its id was paired
// meanwhile, the device has to ask anew.
func (s *Service) Collect(ctx context.Context, secret string) (Collected, error) {
	if !strings.HasPrefix(secret, secretPrefix) || len(secret) > 128 {
		return Collected{}, registry.ErrNoPairing
	}
	p, err := s.cfg.Store.Pairing(ctx, idOf(secret))
	if err != nil {
		return Collected{}, err
	}
	if subtle.ConstantTimeCompare([]byte(p.Digest), []byte(digestOf(secret))) != 1 {
		return Collected{}, registry.ErrNoPairing
	}
	answer := Collected{State: StateOf(p), DeviceID: p.DeviceID}
	if answer.State != StateApproved {
		return answer, nil
	}
	if p, err = s.cfg.Store.TakePairing(ctx, p.ID); err != nil {
		return Collected{}, err
	}
	if err := s.stillTrusted(ctx, p); err != nil {
		return Collected{}, err
	}
	answer.Credential, answer.Name = auth.NewSecret(registry.CredentialDevice), p.Decision.Name
	c := registry.Credential{
		Tenant: p.Decision.Tenant, ID: auth.NewCredentialID(), Kind: registry.CredentialDevice,
		Digest: auth.SecretDigest(answer.Credential), Name: p.Decision.Name, Roles: []string{auth.NameDevice},
		User: p.Decision.User, DeviceID: p.DeviceID, PublicKey: p.PublicKey,
		CreatedBy: p.Decision.By,
	}
	for _, glob := range p.Decision.Tools {
		c.Approved = append(c.Approved, registry.ApprovedTool{Name: glob})
	}
	if _, err := s.cfg.Store.CreateCredential(ctx, c); err != nil {
		return Collected{}, err
	}
	// Whoever says that it is this device without its credential has to stop.
	_, err = s.cfg.Store.AppendChange(ctx, registry.CredentialChange{
		Tenant: c.Tenant, Kind: registry.ChangeDevice, ID: c.DeviceID,
	})
	if err != nil {
		return Collected{}, err
	}
	s.cfg.Log.Info("a device is paired", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", c.CreatedBy)
	return answer, nil
}

// stillTrusted reports why an approved request is no good any more: somebody or something that it names was revoked
// since the device asked. Else whoever is about to be revoked could leave a device behind.
func (s *Service) stillTrusted(ctx context.Context, p registry.Pairing) error {
	if s.cfg.Ended == nil {
		return nil
	}
	d := p.Decision
	for _, id := range [...]auth.Identity{
		{Tenant: d.Tenant, User: d.User, Device: p.DeviceID, Issued: p.CreatedAt},
		{Tenant: d.Tenant, User: d.ByUser, Credential: d.By, Issued: p.CreatedAt},
	} {
		err := s.cfg.Ended(ctx, &id)
		if errors.Is(err, registry.CodeUnauthenticated) {
			s.cfg.Log.Warn("a device gets no credential: who approved it, its user or its id was revoked",
				"pairing", p.ID, "device", p.DeviceID, "tenant", d.Tenant, "by", d.By)
			return registry.ErrNoPairing
		}
		if err != nil {
			return err
		}
	}
	return nil
}
