package pairing

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Imported is a node that was paired with an OpenClaw gateway. It connects with the token it has, and gets a credential
// of Farhand in its place.
type Imported struct {
	PublicKey   ed25519.PublicKey
	TokenDigest string   // the SHA-256 of its token, in hexadecimal digits
	User        string   // its owner; empty: as in Decision
	Name        string   // for people
	Tools       []string // names or globs of tools it may offer
}

// ImportState is what became of an imported node.
type ImportState string

// The states.
const (
	ImportDone   ImportState = "imported"
	ImportExists ImportState = "exists" // it is paired, and was not changed
)

// Import pairs a node without its help. The approver must be an admin: it vouches for the key and the token.
func (s *Service) Import(ctx context.Context, by Approver, n Imported) (ImportState, error) {
	if len(n.PublicKey) != ed25519.PublicKeySize {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"public_key: must be an Ed25519 key, 32 bytes in base64url.")
	}
	deviceID := NodeID(n.PublicKey)
	d, err := approval(by, registry.Pairing{DeviceID: deviceID}, Decision{
		Approve: true, User: n.User, Name: n.Name, Tools: n.Tools,
	})
	if err != nil {
		return "", err
	}
	c := registry.Credential{
		Tenant: by.Tenant, ID: auth.NewCredentialID(), Kind: registry.CredentialDevice, Digest: n.TokenDigest,
		Name: d.Name, Roles: []string{auth.NameDevice}, User: d.User, DeviceID: deviceID, PublicKey: n.PublicKey,
		CreatedBy: d.By,
	}
	for _, glob := range d.Tools {
		c.Approved = append(c.Approved, registry.ApprovedTool{Name: glob})
	}
	paired, err := s.Paired(ctx, by.Tenant, deviceID)
	if err != nil || paired {
		return ImportExists, err
	}
	_, err = s.cfg.Store.CreateCredential(ctx, c)
	if errors.Is(err, registry.ErrDevicePaired) {
		return ImportExists, nil
	}
	if err != nil {
		return "", err
	}
	// Connections that use this device id without its credential must close.
	_, err = s.cfg.Store.AppendChange(ctx, registry.CredentialChange{
		Tenant: c.Tenant, Kind: registry.ChangeDevice, ID: c.DeviceID,
	})
	s.cfg.Log.Info("a node was imported", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", c.CreatedBy)
	return ImportDone, err
}
