package auth

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Identity identifies a caller. It comes from verified credentials only, never from what a client claims.
type Identity struct {
	Tenant string
	User   string // empty if the credentials name no user
	Admin  bool   // has every role, sees all of its tenant, may call registry.SecurityAdminOnly tools
	Roles  Roles  // other roles; not used for admins, who may do everything

	// Device is the only device_id that the identity may use. Empty: any.
	Device string

	// Tools restricts which tools the identity may call and register: globs over tool names, separated by spaces like
	// OAuth scopes. Empty: no restriction.
	Tools string

	// Context says who takes part in the conversations that the identity opens: agent.ContextMain, agent.ContextGroup
	// or agent.ContextSandboxed. Empty: agent.ContextMain.
	Context string

	// Person says that the identity's calls over MCP come from a person's program. Otherwise they count as a model's.
	Person bool

	// Credential names the credential without its secret: "token", "key:" and the key's id, "device:" and the
	// credential's id, or "jwt:" and the token's jti. Revocations and the audit log use it.
	Credential string

	// Name is the credential's name for people. Empty: it has none.
	Name string

	// Source is the address or network that the request came from. It is not part of the identity.
	Source netip.Prefix

	Issued  time.Time // when the credential was made, if that is known
	Expires time.Time // when the identity ends; zero: never

	// Use is called for each request of the identity, and repeatedly while it holds a connection. Nil: the use of its
	// credential is not recorded.
	Use Use `json:"-"`
}

// Use records that a credential is in use now. NoteUse does not block and is safe for concurrent use.
type Use interface{ NoteUse() }

// Roles is a set of roles. The role admin is Identity.Admin.
type Roles uint8

// The roles.
const (
	RoleDevice   Roles = 1 << iota // may connect a device's WebSocket, and talk to the agent over it
	RoleCaller                     // may list and call tools, follow calls, and hold conversations
	RoleApprover                   // may decide approvals and pairings of its user, or of all users if it names none
)

// Names of roles in credentials and policies.
const (
	NameDevice   = "device"
	NameCaller   = "caller"
	NameApprover = "approver"
	NameAdmin    = "admin"
)

// RoleNames returns the names of all roles.
func RoleNames() []string { return []string{NameDevice, NameCaller, NameApprover, NameAdmin} }

// SetRoles replaces the identity's roles with the named ones. An unknown name is an error.
func (id *Identity) SetRoles(names ...string) error {
	admin, roles := false, Roles(0)
	for _, name := range names {
		switch name {
		case NameDevice:
			roles |= RoleDevice
		case NameCaller:
			roles |= RoleCaller
		case NameApprover:
			roles |= RoleApprover
		case NameAdmin:
			admin = true
		default:
			return registry.Errorf(registry.CodeInvalidRequest, "There is no role %.40q; there are: %s.", name,
				strings.Join(RoleNames(), ", "))
		}
	}
	id.Admin, id.Roles = admin, roles
	return nil
}

// RoleNames returns the names of the roles of an identity.
func (id Identity) RoleNames() []string {
	var names []string
	for _, r := range []struct {
		role Roles
		name string
	}{{RoleDevice, NameDevice}, {RoleCaller, NameCaller}, {RoleApprover, NameApprover}} {
		if id.Roles&r.role != 0 {
			names = append(names, r.name)
		}
	}
	if id.Admin {
		names = append(names, NameAdmin)
	}
	return names
}

// Has reports whether the identity has one of the roles. An admin has all.
func (id Identity) Has(oneOf Roles) bool { return id.Admin || id.Roles&oneOf != 0 }

// NeedRole returns the error for an identity that has none of the required roles.
func NeedRole(id Identity, oneOf ...string) *registry.Error {
	has := strings.Join(id.RoleNames(), ", ")
	if has == "" {
		has = "none"
	}
	return registry.Errorf(registry.CodeForbidden,
		"This needs the role %s. The roles of this credential: %s. Use one that has it, or ask an admin for it.",
		strings.Join(oneOf, " or "), has)
}

// Approves reports whether the identity may decide approvals. The credential of a paired device never has the role.
func (id Identity) Approves() bool { return id.Has(RoleApprover) }

// HasNamed reports whether the identity has the role of this name.
func (id Identity) HasNamed(role string) bool {
	return id.Admin || slices.Contains(id.RoleNames(), role)
}

// Sees reports whether the identity may see, call and use what belongs to a user. Admins, and identities without a
// user, see everything of their tenant. What belongs to no user is visible to all identities of the tenant.
func (id Identity) Sees(user string) bool {
	return id.Admin || id.User == "" || user == "" || id.User == user
}

// Viewer returns the user to whose resources, besides those without a user, the identity is limited. Empty: it may see
// everything of its tenant.
func (id Identity) Viewer() string {
	if id.Admin {
		return ""
	}
	return id.User
}

// OwnsAll reports whether the identity may take over what belongs to any user and device of its tenant: it is an admin
// without a user.
func (id Identity) OwnsAll() bool { return id.Admin && id.User == "" }

// Scope is the namespace, within the tenant, of the identity's idempotency keys and continuations. It is the user. If
// the credentials name none, it is the API key or the device's credential. Holders of the shared token share one scope.
// JWTs always name a user.
func (id Identity) Scope() string {
	switch {
	case id.User != "":
		return "user:" + id.User
	case strings.HasPrefix(id.Credential, "key:") || strings.HasPrefix(id.Credential, "device:"):
		return id.Credential
	default:
		return ""
	}
}

// Holder names who may continue what a closed connection of the identity left: the answers to its calls in flight, and
// its session with a resume token. It is the API key or the device's credential. For JWTs it is the user and the
// device, because renewed tokens have other ids. Empty: all holders of the shared token.
func (id Identity) Holder() string {
	switch {
	case id.Scope() == "" && id.Device == "":
		return ""
	case strings.HasPrefix(id.Credential, "key:") || strings.HasPrefix(id.Credential, "device:"):
		return id.Credential
	default:
		return "user:" + id.User + " device:" + id.Device
	}
}

// AsHolder returns the identity with the lifetime of its Holder. For a JWT it has no expiry, because the holder can
// come back with a renewed token.
func (id Identity) AsHolder() Identity {
	if strings.HasPrefix(id.Credential, CredentialJWT+":") {
		id.Expires = time.Time{}
	}
	return id
}

// Owner names the identity in quotas of a pod: its user or, if the credentials name none, the API key or the device's
// credential. All holders of the shared token are one owner. The source of a request does not matter: more addresses do
// not get more quota.
func (id Identity) Owner() share.Owner {
	kind, _, _ := strings.Cut(id.Credential, ":")
	return share.Owner{Tenant: id.Tenant, Identity: cmp.Or(id.Scope(), kind, "anonymous")}
}

// Label returns the credential for people: its name with Credential in parentheses, or Credential alone.
func (id Identity) Label() string {
	if id.Name == "" {
		return id.Credential
	}
	return id.Name + " (" + id.Credential + ")"
}

// Account returns the label of an API key or device credential that names no user: usage is counted under it. Empty for
// all other identities.
func (id Identity) Account() string {
	if id.User == "" && id.Scope() != "" {
		return id.Label()
	}
	return ""
}

// Expired reports whether the identity has expired.
func (id Identity) Expired(now time.Time) bool {
	return !id.Expires.IsZero() && !now.Before(id.Expires)
}

// MayEnd reports whether the identity can expire or be revoked.
func (id Identity) MayEnd() bool {
	if id.User != "" || id.Device != "" || !id.Expires.IsZero() {
		return true
	}
	_, revocable := credentialSubject(&id)
	return revocable
}
