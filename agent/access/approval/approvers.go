package approval

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Credentials are the credentials of a tenant. registry.CredentialStore is one.
type Credentials interface {
	Credentials(ctx context.Context, q registry.CredentialQuery) ([]registry.Credential, string, error)
	Credential(ctx context.Context, tenant, id string) (registry.Credential, error)
}

const (
	maxCredentialsRead = 500 // of a tenant, to find its approvers
	maxApprovers       = 8   // that are named

	holdersAge = 2 * time.Second // for which they are not read again
	maxHolders = 20_000          // that are remembered, twice
)

// holders are the keys of a tenant by which somebody may be an approver.
type holders struct {
	keys []auth.Identity
	more bool // not all were read
	read time.Time
}

// approvers returns who may decide an approval, for the caller to know whom to ask. It is best effort: it names a few,
// and other ways to hold the role, such as JSON Web Tokens, as the gateway is configured.
func (k *Keeper) approvers(ctx context.Context, a registry.Approval) []string {
	names := a.Approvers
	if k.cfg.Credentials != nil {
		all := k.holders(ctx, a.Tenant)
		more := all.more
		for _, who := range all.keys {
			if !MayDecide(who, a) {
				continue
			}
			switch name := cmp.Or(who.User, who.Name, who.Credential); {
			case slices.Contains(names, name):
			case len(names) >= maxApprovers:
				more = true
			default:
				names = append(names, name)
			}
		}
		if more {
			names = append(names, "others")
		}
	}
	for _, way := range k.cfg.Approvers {
		if way.Who == nil || MayDecide(*way.Who, a) {
			names = append(names, way.Name)
		}
	}
	return names
}

// holders reads the keys of a tenant, at most once in holdersAge however often it asks.
func (k *Keeper) holders(ctx context.Context, tenant string) holders {
	known, ok := k.holdersOf.Get(tenant)
	if ok && time.Since(known.read) < holdersAge {
		return known
	}
	all, next, err := k.cfg.Credentials.Credentials(ctx, registry.CredentialQuery{
		Tenant: tenant, Kind: registry.CredentialKey, Limit: maxCredentialsRead,
	})
	if err != nil {
		k.cfg.Log.Debug("approvers not read", "error", err)
	}
	found := holders{more: next != "", read: time.Now()}
	for _, c := range all {
		if who, err := auth.IdentityOf(c); err == nil && who.Approves() {
			found.keys = append(found.keys, who)
		}
	}
	if err == nil {
		k.holdersOf.Put(tenant, found, 1+len(found.keys))
	}
	return found
}

// Approver is a way to be an approver that is no stored credential.
type Approver struct {
	Name string         // for people
	Who  *auth.Identity // who comes in that way; nil: some of every tenant
}
