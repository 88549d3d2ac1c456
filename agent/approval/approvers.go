package approval

import (
	"cmp"
	"context"
	"slices"

	"github.com/farhand/farhand/agent/auth"
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
)

// approvers returns who may decide an approval, for the caller to know whom to ask. It is best effort: it names a few,
// and other ways to hold the role, such as JSON Web Tokens, as the gateway is configured.
func (k *Keeper) approvers(ctx context.Context, a registry.Approval) []string {
	names := a.Approvers
	if k.cfg.Credentials != nil {
		all, next, err := k.cfg.Credentials.Credentials(ctx, registry.CredentialQuery{
			Tenant: a.Tenant, Kind: registry.CredentialKey, Limit: maxCredentialsRead,
		})
		if err != nil {
			k.cfg.Log.Debug("approvers not read", "error", err)
		}
		more := next != ""
		for _, c := range all {
			who, err := auth.IdentityOf(c)
			if err != nil || !MayDecide(who, a) {
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

// Approver is a way to be an approver that is no stored credential.
type Approver struct {
	Name string         // for people
	Who  *auth.Identity // who comes in that way; nil: some of every tenant
}
