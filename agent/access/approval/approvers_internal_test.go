package approval

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// countedKeys are the keys of one approver, and count how often they are listed.
type countedKeys struct {
	lists atomic.Int64
	err   error
}

func (c *countedKeys) Credentials(
	_ context.Context, q registry.CredentialQuery,
) ([]registry.Credential, string, error) {
	c.lists.Add(1)
	return []registry.Credential{
		{ID: "1", Kind: registry.CredentialKey, Tenant: q.Tenant, Name: "Ann's", Roles: []string{"approver"}},
		{ID: "2", Kind: registry.CredentialKey, Tenant: q.Tenant, Name: "program", Roles: []string{"caller"}},
	}, "", c.err
}

func (*countedKeys) Credential(context.Context, string, string) (registry.Credential, error) {
	return registry.Credential{}, registry.Errorf(registry.CodeNotFound, "no such credential")
}

// Many questions of a tenant at once, also those that are refused, read its keys once. Another tenant's are its own.
func TestKeysAreReadOnceForManyQuestions(t *testing.T) {
	keys := new(countedKeys)
	store := memory.New(memory.Options{})
	k := New(Config{Store: store, Pods: store, Credentials: keys,
		Verify: func(context.Context, *auth.Identity) error { return nil }})
	defer k.Close()
	for range 50 {
		names := k.approvers(t.Context(), registry.Approval{Tenant: "t", Tool: "lamp"})
		if !slices.Equal(names, []string{"Ann's"}) {
			t.Fatalf("approvers: %q", names)
		}
	}
	k.approvers(t.Context(), registry.Approval{Tenant: "other", Tool: "lamp"})
	before := keys.lists.Load()
	if before > 10 { // one for each tenant, and a few on a machine that stands still for seconds
		t.Errorf("keys were listed %d times", before)
	}
	keys.err = registry.StoreUnavailable("list", nil)
	for range 2 {
		k.approvers(t.Context(), registry.Approval{Tenant: "third", Tool: "lamp"})
	}
	if n := keys.lists.Load() - before; n != 2 {
		t.Errorf("keys that could not be read are not read again: %d", n)
	}
}
