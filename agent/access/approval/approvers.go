package approval

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Credentials reads the credentials of a tenant. registry.CredentialStore implements it.
type Credentials interface {
	Credentials(ctx context.Context, q registry.CredentialQuery) ([]registry.Credential, string, error)
	Credential(ctx context.Context, tenant, id string) (registry.Credential, error)
}

const (
	maxCredentialsRead = 500 // per tenant, to find its approvers
	maxApprovers       = 8   // names per approval

	approverKeysAge = 2 * time.Second // how long they are cached
	maxApproverKeys = 20_000          // keys in the cache, per generation; there are two
)

type approverKeys struct {
	keys []auth.Identity
	more bool // not all were read
	read time.Time
}

// approvers returns names of identities that may decide an approval, so that the caller knows whom to ask. It is best
// effort: it names at most maxApprovers keys, and the other ways to get the role, such as JWTs, from the configuration.
func (k *Service) approvers(ctx context.Context, a registry.Approval) []string {
	names := a.Approvers
	if k.cfg.Credentials != nil {
		all := k.approverKeys(ctx, a.Tenant)
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

// approverKeys reads the approver keys of a tenant, at most once per approverKeysAge.
func (k *Service) approverKeys(ctx context.Context, tenant string) approverKeys {
	known, ok := k.keyCache.Get(tenant)
	if ok && time.Since(known.read) < approverKeysAge {
		return known
	}
	all, next, err := k.cfg.Credentials.Credentials(ctx, registry.CredentialQuery{
		Tenant: tenant, Kind: registry.CredentialKey, Limit: maxCredentialsRead,
	})
	if err != nil {
		k.cfg.Log.Debug("approvers not read", "error", err)
	}
	found := approverKeys{more: next != "", read: time.Now()}
	for _, c := range all {
		if who, err := auth.IdentityOf(c); err == nil && who.Approves() {
			found.keys = append(found.keys, who)
		}
	}
	if err == nil {
		k.keyCache.Put(tenant, found, 1+len(found.keys))
	}
	return found
}

// Approver is a way to be an approver without a stored credential.
type Approver struct {
	Name string         // for people
	Who  *auth.Identity // the identity; nil: identities of any tenant
}

// maySee reports whether an identity may see an approval: it has the role, and the device belongs to its user. A
// credential that is bound to a device may see only that device's approvals. A credential restricted to some tools may
// see only approvals of those tools: an approver lets others call only what it may call itself.
func maySee(who auth.Identity, a registry.Approval) bool {
	return who.Tenant == a.Tenant && who.Approves() && who.Sees(a.Owner) &&
		(who.Device == "" || who.Device == a.DeviceID) &&
		(who.Tools == "" || policy.Match(strings.Fields(who.Tools), a.Tool))
}

// MayDecide reports whether an identity may allow the call of an approval. These rules apply to the identity's own
// calls:
//
//   - By ApproveAnyone: it may allow them.
//   - By ApproveOther and ApproveTwo: the person who made the call may not. A person is a user, or a credential without
//     a user.
//   - By default: the credential that made the call may not. JWTs of one user count as one credential. The shared token
//     may. The person in a conversation also may, because the model makes those calls.
func MayDecide(who auth.Identity, a registry.Approval) bool {
	return maySee(who, a) && !isOwn(who, a)
}

// isOwn reports whether the identity made the call of an approval, and therefore may not allow it.
func isOwn(who auth.Identity, a registry.Approval) bool {
	switch a.By {
	case registry.ApproveAnyone:
		return false
	case registry.ApproveOther, registry.ApproveTwo:
		return sameCredential(who, a.Requester) || personOf(who) == a.Requester.Key()
	default:
		inConversation, by := a.Model && a.Turn != "", a.Requester
		shared := by.Credential == auth.CredentialToken || by.Credential == "" && by.User == ""
		return !inConversation && !shared && sameCredential(who, by)
	}
}

// sameCredential reports whether the identity has the credential that made a request.
func sameCredential(who auth.Identity, r registry.Requester) bool {
	isJWT := func(name string) bool { return strings.HasPrefix(name, auth.CredentialJWT+":") }
	if isJWT(who.Credential) && isJWT(r.Credential) {
		return who.User == r.User
	}
	return who.Credential == r.Credential && (who.Credential != "" || who.User == r.User)
}

func personOf(who auth.Identity) string { return who.Requester().Key() }
