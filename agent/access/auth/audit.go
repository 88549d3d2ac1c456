package auth

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Auditor receives entries of the audit log. Note does not block and is safe for concurrent use. It sets the pod and,
// if missing, the time. An entry without a tenant is dropped.
type Auditor interface{ Note(registry.AuditEntry) }

// NoAudit is an Auditor that drops all entries.
type NoAudit struct{}

// Note implements Auditor.
func (NoAudit) Note(registry.AuditEntry) {}

// Requester returns the identity in the form that approvals store.
func (id Identity) Requester() registry.Requester {
	return registry.Requester{User: id.User, Credential: id.Credential, Name: id.Name}
}

// Actor returns the identity in the form that the audit log stores.
func (id Identity) Actor() registry.AuditActor {
	return registry.AuditActor{
		User: id.User, Credential: id.Credential, Name: id.Name, Roles: id.RoleNames(), Source: SourceName(id.Source),
	}
}

// ActorOf returns the identity as an audit log actor, with the source of the request.
func (s Sources) ActorOf(id Identity, r *http.Request) registry.AuditActor {
	id.Source = s.Network(r)
	return id.Actor()
}

// SourceName returns a source in the form that the audit log stores. A single address has no prefix length.
func SourceName(source netip.Prefix) string {
	switch {
	case !source.IsValid():
		return ""
	case source.IsSingleIP():
		return source.Addr().String()
	default:
		return source.String()
	}
}

// note is what a call's record stores about its caller, besides tenant and user.
type note struct {
	Admin      bool   `json:"admin,omitempty"`
	Roles      Roles  `json:"roles,omitempty"`
	Device     string `json:"device,omitempty"`
	Tools      string `json:"tools,omitempty"`
	Context    string `json:"context,omitempty"`
	Person     bool   `json:"person,omitempty"`
	Credential string `json:"credential,omitempty"`
}

// tokenNote is the note of a caller with the shared token.
const tokenNote = `{"admin":true,"credential":"` + CredentialToken + `"}`

// Note encodes the identity, except tenant and user, for OfNote on another pod. It contains no secret. It is encoded by
// hand because every call needs one: encoding/json took 2 % of the calling pod's time.
func (id Identity) Note() string {
	switch (note{id.Admin, id.Roles, id.Device, id.Tools, id.Context, id.Person, id.Credential}) {
	case note{Admin: true, Credential: CredentialToken}:
		return tokenNote
	case note{}:
		return ""
	}
	b := append(make([]byte, 0, noteRoom), `{"roles":`...)
	b = strconv.AppendUint(b, uint64(id.Roles), 10)
	if id.Admin {
		b = append(b, `,"admin":true`...)
	}
	if id.Person {
		b = append(b, `,"person":true`...)
	}
	for _, part := range [...]struct{ name, value string }{
		{`,"device":`, id.Device}, {`,"tools":`, id.Tools}, {`,"context":`, id.Context},
		{`,"credential":`, id.Credential},
	} {
		if part.value != "" {
			b = strictjson.AppendString(append(b, part.name...), part.value)
		}
	}
	return string(append(b, '}'))
}

// noteRoom is enough for most notes.
const noteRoom = 128

// OfNote returns the identity of a tenant and user from its note. If the note is malformed, the identity has no roles
// and no rights.
func OfNote(tenant, user, text string) Identity {
	var n note
	if text != "" && json.Unmarshal([]byte(text), &n) != nil {
		n = note{}
	}
	return Identity{
		Tenant: tenant, User: user, Admin: n.Admin, Roles: n.Roles, Device: n.Device, Tools: n.Tools,
		Context: n.Context, Person: n.Person, Credential: n.Credential,
	}
}
