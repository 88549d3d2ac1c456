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
	Admin  bool   // has every role but RoleOperator, sees all of its tenant, may call registry.SecurityAdminOnly tools
	Roles  Roles  // other roles; not used for admins, who may do everything

	Device  string // the only device_id that the identity may use; empty: any
	Tools   string // globs over the tools that it may call and register, separated by spaces; empty: all
	Context string // the kind of its conversations, an agent.ContextKind; empty: agent.ContextMain
	Person  bool   // its calls over MCP come from a person's program; otherwise they count as a model's

	// Credential names the credential without its secret: "token", "key:" and the key's id, "device:" and the
	// credential's id, or "jwt:" and the token's jti. Revocations and the audit log use it.
	Credential string
	Name       string // of the credential, for people; empty: it has none

	// Secret is the start of the digest of the secret of a stored credential, which may have two during a rotation.
	Secret string

	Source  netip.Prefix // the address or network of the request; not part of the identity
	Issued  time.Time    // when the credential was made, if that is known
	Expires time.Time    // when the identity ends; zero: never

	// Use is called for each request, and repeatedly while the identity holds a connection. Nil: use is not recorded.
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
	roleAdmin                      // Identity.Admin, in lists of names

	// RoleOperator may list the tenants of the fleet in numbers, make their first keys and set their budgets. It is
	// above tenants, and reads nothing that belongs to one. Admins do not have it.
	RoleOperator
)

// Names of roles in credentials and policies.
const (
	NameDevice   = "device"
	NameCaller   = "caller"
	NameApprover = "approver"
	NameAdmin    = "admin"
	NameOperator = "operator"
)

// RoleNames returns the names of all roles, in the order of their bits in Roles.
func RoleNames() []string {
	return []string{NameDevice, NameCaller, NameApprover, NameAdmin, NameOperator}
}

// SetRoles replaces the identity's roles with the named ones. An unknown name is an error.
func (id *Identity) SetRoles(names ...string) error {
	roles := Roles(0)
	for _, name := range names {
		bit := slices.Index(RoleNames(), name)
		if bit < 0 {
			return registry.Errorf(registry.CodeInvalidRequest, "There is no role %.40q. Use one of: %s.", name,
				strings.Join(RoleNames(), ", "))
		}
		roles |= 1 << bit
	}
	id.Admin, id.Roles = roles&roleAdmin != 0, roles&^roleAdmin
	return nil
}

// RoleNames returns the names of the roles of an identity.
func (id Identity) RoleNames() []string {
	roles := id.Roles &^ roleAdmin
	if id.Admin {
		roles |= roleAdmin
	}
	var names []string
	for bit, name := range RoleNames() {
		if roles&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Has reports whether the identity has one of the roles. An admin has all but RoleOperator.
func (id Identity) Has(oneOf Roles) bool {
	return id.Admin && oneOf != RoleOperator || id.Roles&oneOf != 0
}

// NeedRole returns the error for an identity that has none of the required roles.
func NeedRole(id Identity, oneOf ...string) *registry.Error {
	return registry.Errorf(registry.CodeForbidden,
		"The role %s is required; this credential has: %s. Use another credential, or ask an admin for the role.",
		strings.Join(oneOf, " or "), cmp.Or(strings.Join(id.RoleNames(), ", "), "none"))
}

// Approves reports whether the identity may decide approvals. The credential of a paired device never has the role.
func (id Identity) Approves() bool { return id.Has(RoleApprover) }

// HasNamed reports whether the identity has the role of this name.
func (id Identity) HasNamed(role string) bool {
	return id.Admin && role != NameOperator || slices.Contains(id.RoleNames(), role)
}

// Sees reports whether the identity may see, call and use what belongs to a user. Admins, and identities without a
// user, see everything of their tenant. What belongs to no user is visible to all identities of the tenant.
func (id Identity) Sees(user string) bool {
	return id.Admin || id.User == "" || user == "" || id.User == user
}

// Viewer returns the only user whose resources the identity sees, besides those without a user. Empty: it sees all.
func (id Identity) Viewer() string {
	if id.Admin {
		return ""
	}
	return id.User
}

// OwnsAll reports whether the identity, an admin without a user, may take over what belongs to any user and device.
func (id Identity) OwnsAll() bool { return id.Admin && id.User == "" }

// Scope is the namespace, within the tenant, of the identity's idempotency keys and continuations: the user or, if the
// credentials name none, the API key or the device's credential. Holders of the shared token share one scope.
func (id Identity) Scope() string {
	switch {
	case id.User != "":
		return "user:" + id.User
	case id.isStored():
		return id.Credential
	default:
		return ""
	}
}

// isStored reports whether the credential is an API key or a device's credential.
func (id Identity) isStored() bool {
	return strings.HasPrefix(id.Credential, "key:") || strings.HasPrefix(id.Credential, "device:")
}

// Holder names the identity that may continue what a closed connection left: answers to calls in flight, and a session
// with a resume token. It is the stored credential or, because renewed JWTs have other ids, a JWT's user and device.
// Empty: all holders of the shared token.
func (id Identity) Holder() string {
	switch {
	case id.Scope() == "" && id.Device == "":
		return ""
	case id.isStored():
		return id.Credential
	default:
		return "user:" + id.User + " device:" + id.Device
	}
}

// AsHolder returns the identity with the lifetime of its Holder: that of a JWT can come back with a renewed token.
func (id Identity) AsHolder() Identity {
	if strings.HasPrefix(id.Credential, CredentialJWT+":") {
		id.Expires = time.Time{}
	}
	return id
}

// Owner names the identity in quotas of a pod: its user or, if the credentials name none, the API key or the device's
// credential. All holders of the shared token are one owner, whatever their addresses.
func (id Identity) Owner() share.Owner {
	kind, _, _ := strings.Cut(id.Credential, ":")
	return share.Owner{Tenant: id.Tenant, Identity: cmp.Or(id.Scope(), kind, "anonymous")}
}

// FileOwner returns who shares quotas of files with all its sessions. It is zero for a credential that names neither a
// user nor a device: it may serve a fleet.
func (id Identity) FileOwner() registry.BlobOwner {
	return registry.BlobOwner{User: id.User, Device: id.Device}
}

// Label returns the credential for people: its name with Credential in parentheses, or Credential alone.
func (id Identity) Label() string {
	if id.Name == "" {
		return id.Credential
	}
	return id.Name + " (" + id.Credential + ")"
}

// Account returns the label under which usage is counted without a user: that of a stored credential, else empty.
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
