package pairings

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// nonceIndex is the index of an owner's nonces, and toolsID the document of a device's tools. Each is alone in its
// space.
const (
	nonceIndex = "all"
	toolsID    = "tools"
)

func nonces(tenant, owner string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "nonces", Owner: owner}
}

func deviceTools(tenant, credential string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "devicetools", Owner: credential}
}

// PutNonce implements registry.PairingStore.
func (s store) PutNonce(ctx context.Context, tenant, owner, nonce string, life time.Duration) error {
	_, err := documents.Commit(ctx, s.docs, nonces(tenant, owner),
		documents.Join(nonceIndex, nonce, life, 0), documents.Keep(nonceIndex, registry.MaxNonces))
	return err
}

// TakeNonce implements registry.PairingStore.
func (s store) TakeNonce(ctx context.Context, tenant, owner, nonce string) (bool, error) {
	done, err := documents.Commit(ctx, s.docs, nonces(tenant, owner),
		documents.Has(nonceIndex, nonce), documents.Leave(nonceIndex, nonce))
	return err == nil && done.Refused == 0, err
}

// SetDeviceTools implements registry.PairingStore.
func (s store) SetDeviceTools(ctx context.Context, tenant, credential string, t registry.DeviceTools) error {
	if t.Size() > registry.MaxDeviceDefinitions {
		return registry.ErrDefinitionsTooLarge
	}
	_, err := documents.Commit(ctx, s.docs, deviceTools(tenant, credential),
		documents.PutJSON(toolsID, t, registry.CredentialIdle))
	return err
}

// DeviceTools implements registry.PairingStore.
func (s store) DeviceTools(ctx context.Context, tenant, credential string) (t registry.DeviceTools, err error) {
	found, err := s.docs.Read(ctx, deviceTools(tenant, credential).Ref(toolsID))
	if err != nil || !found[0].Exists() {
		return t, err
	}
	t, err = documents.Decode[registry.DeviceTools](found[0], nil)
	for _, list := range [...][]registry.ToolSpec{t.Waiting, t.Pinned} {
		for i := range list {
			list[i] = list[i].Hashed()
		}
	}
	return t, err
}
