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

// maySee reports whether an identity may see an approval: it has the role, and the device is its user's. A credential
// that is bound to a device speaks for that one only, and one that is restricted to some tools for those: an approver
// lets others call only what it may call itself.
func maySee(who auth.Identity, a registry.Approval) bool {
	return who.Tenant == a.Tenant && who.Approves() && who.Sees(a.Owner) &&
		(who.Device == "" || who.Device == a.DeviceID) &&
		(who.Tools == "" || policy.Match(strings.Fields(who.Tools), a.Tool))
}

// MayDecide reports whether an identity may allow the call of an approval. An approver may not allow a call of its own:
//
//   - By ApproveAnyone: it may.
//   - By ApproveOther and ApproveTwo: the person who made the call may not. A person is a user, or a credential that
//     names none.
//   - By default: the credential that made the call may not; JSON Web Tokens of one user count as one. The one token,
//     which everybody on its machine shares, may. So may the person of a conversation: the model makes those calls.
func MayDecide(who auth.Identity, a registry.Approval) bool {
	return maySee(who, a) && !isOwn(who, a)
}

// isOwn reports whether an approval is about a call that who made, and may therefore not allow.
func isOwn(who auth.Identity, a registry.Approval) bool {
	switch a.By {
	case registry.ApproveAnyone:
		return false
	case registry.ApproveOther, registry.ApproveTwo:
		return sameCredential(who, a.Requester) || personOf(who) == a.Requester.Key()
	default:
		inConversation := a.Model && a.Turn != ""
		return !inConversation && !isShared(a.Requester) && sameCredential(who, a.Requester)
	}
}

// isShared reports whether the requester has the one token, or needs no credential at all.
func isShared(r registry.Requester) bool {
	return r.Credential == auth.CredentialToken || r.Credential == "" && r.User == ""
}

// sameCredential reports whether who has the credential that made a request.
func sameCredential(who auth.Identity, r registry.Requester) bool {
	isJWT := func(name string) bool { return strings.HasPrefix(name, auth.CredentialJWT+":") }
	if isJWT(who.Credential) && isJWT(r.Credential) {
		return who.User == r.User
	}
	return who.Credential == r.Credential && (who.Credential != "" || who.User == r.User)
}

// personOf tells persons apart who decide.
func personOf(who auth.Identity) string { return who.Requester().Key() }

// errOwn refuses an approver that made the call.
func errOwn(a registry.Approval) error {
	e := registry.Errorf(registry.CodeForbidden,
		"You made this call of %q, so another approver must allow it (rule %s). You may deny it.", a.Tool, a.Rule)
	e.Rule = a.Rule
	return e
}
