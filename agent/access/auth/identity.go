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

// Identity is who is asking, taken from verified credentials only. Nothing that a client says of itself is in it.
type Identity struct {
	Tenant string
	User   string // empty when the credentials name nobody in particular
	Admin  bool   // has every role, sees everything of its tenant, and may call what is registry.SecurityAdminOnly
	Roles  Roles  // what else it may do; not for admins, who may do everything

	// Device is the only device that the identity can be: its device_id. Empty: any.
	Device string

	// Tools restricts which tools the identity may call and register: globs over their names, separated by spaces as
	// the scopes of OAuth are. Empty: no restriction.
	Tools string

	// Context says who takes part in the conversations the identity opens: agent.ContextMain, agent.ContextGroup or
	// agent.ContextSandboxed. Empty: agent.ContextMain.
	Context string

	// Person says that a person's program makes the identity's calls over MCP. Otherwise they are a model's.
	Person bool

	// Credential names what proved the identity, without being secret: "token", "key:" and the key's id, "device:" and
	// the credential's id, or "jwt:" and the token's jti. It is what is revoked, and what the audit log has.
	Credential string

	// Name is what people call the credential. Empty: they have not named it.
	Name string

	// Source is where its request came from: an address or a network. It is no part of who it is.
	Source netip.Prefix

	Issued  time.Time // when the credential was made, if that is known
	Expires time.Time // when the identity ends; zero: never

	// Use is told again and again while a connection of the identity lives, as it is of each request; nil: the use of
	// its credential is not noted.
	Use Use `json:"-"`
}

// Use notes that a credential is used now. It returns at once, and is safe for concurrent use.
type Use interface{ NoteUse() }

// Roles is a set of roles. The role admin is Identity.Admin.
type Roles uint8

// The roles.
const (
	RoleDevice   Roles = 1 << iota // may hold a device's WebSocket, and talk to the agent over it
	RoleCaller                     // may list and call tools, follow calls, and hold conversations
	RoleApprover                   // may decide approvals and pairings of its user, or of everybody if it names no user
)

// Names of roles, as credentials and policies write them.
const (
	NameDevice   = "device"
	NameCaller   = "caller"
	NameApprover = "approver"
	NameAdmin    = "admin"
)

// RoleNames returns the names of all roles.
func RoleNames() []string { return []string{NameDevice, NameCaller, NameApprover, NameAdmin} }

// SetRoles gives an identity the named roles, in place of those it has. An unknown name is an error.
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

// NeedRole returns the error for an identity that has none of the named roles, one of which it needs.
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

// Sees reports whether what belongs to a user may be seen, called and used by the identity. Admins, and identities that
// name no user, see everything of their tenant; what belongs to nobody in particular is everybody's.
func (id Identity) Sees(user string) bool {
	return id.Admin || id.User == "" || user == "" || id.User == user
}

// Viewer returns the user whose things, beside those of nobody, are all the identity may see. Empty: it may see
// everything of its tenant.
func (id Identity) Viewer() string {
	if id.Admin {
		return ""
	}
	return id.User
}

// OwnsAll reports whether the identity may take over what belongs to any user and device of its tenant, as an admin may
// who names no user.
func (id Identity) OwnsAll() bool { return id.Admin && id.User == "" }

// Scope names what the identity's own things are kept under, beside its tenant: idempotency keys and continuations. It
// is the user or, if the credentials name none, the API key or the device's credential. Whoever shares the one token
// shares these things. JWTs always name a user.
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

// Holder names who goes on with what a connection of the identity left: the answers to its calls in flight, and its
// session by a resume token. It is the API key or the device's credential; of JWTs, whose renewals have other ids, the
// user and the device. Empty: whoever shares the one token.
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

// AsHolder returns the identity as long as its Holder may come back: that of a JWT may come with a renewal, so the end
// of this one is not theirs.
func (id Identity) AsHolder() Identity {
	if strings.HasPrefix(id.Credential, CredentialJWT+":") {
		id.Expires = time.Time{}
	}
	return id
}

// Owner names the identity where it holds a part of what a pod has: its user or, if the credentials name none, the API
// key or the device's credential. All holders of the one token are one. Where a request comes from does not matter: an
// address more is no identity more.
func (id Identity) Owner() share.Owner {
	kind, _, _ := strings.Cut(id.Credential, ":")
	return share.Owner{Tenant: id.Tenant, Identity: cmp.Or(id.Scope(), kind, "anonymous")}
}

// Label returns what people read of a credential: its name and, in brackets, Credential; or that alone.
func (id Identity) Label() string {
	if id.Name == "" {
		return id.Credential
	}
	return id.Name + " (" + id.Credential + ")"
}

// Account returns the label of a credential of its own that names no user: what usage is counted for then. Empty for
// others.
func (id Identity) Account() string {
	if id.User == "" && id.Scope() != "" {
		return id.Label()
	}
	return ""
}

// Expired reports whether the identity has ended.
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
