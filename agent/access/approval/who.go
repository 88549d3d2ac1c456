package approval

import (
	"strings"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

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
