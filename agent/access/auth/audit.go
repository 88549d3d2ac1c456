package auth

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Auditor takes lines of the audit log. Its method returns at once and is safe for concurrent use. It fills in the pod
// and, unless they are set, the time. A line without a tenant is lost.
type Auditor interface{ Note(registry.AuditEntry) }

// NoAudit is an Auditor that notes nothing.
type NoAudit struct{}

// Note implements Auditor.
func (NoAudit) Note(registry.AuditEntry) {}

// Requester returns the identity as approvals have it.
func (id Identity) Requester() registry.Requester {
	return registry.Requester{User: id.User, Credential: id.Credential, Name: id.Name}
}

// Actor returns the identity as the audit log has it.
func (id Identity) Actor() registry.AuditActor {
	return registry.AuditActor{
		User: id.User, Credential: id.Credential, Name: id.Name, Roles: id.RoleNames(), Source: SourceName(id.Source),
	}
}

// ActorOf returns an identity as the audit log has it, with the source of a request.
func (s Sources) ActorOf(id Identity, r *http.Request) registry.AuditActor {
	id.Source = s.Of(r)
	return id.Actor()
}

// SourceName returns a source as the audit log has it: an address alone without the length of its prefix.
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

// note is what the record of a call keeps of its caller, beside tenant and user.
type note struct {
	Admin      bool   `json:"admin,omitempty"`
	Roles      Roles  `json:"roles,omitempty"`
	Device     string `json:"device,omitempty"`
	Tools      string `json:"tools,omitempty"`
	Context    string `json:"context,omitempty"`
	Person     bool   `json:"person,omitempty"`
	Credential string `json:"credential,omitempty"`
}

// tokenNote is the note of whoever has the one token.
const tokenNote = `{"admin":true,"credential":"` + CredentialToken + `"}`

// Note returns what else than tenant and user is known of the identity, for OfNote on another pod. Nothing in it is
// secret. Each call has one, so it is written by hand: encoding/json took 2 % of the asking pod's time.
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

// OfNote returns the identity of a tenant and user that made a note. Of a note that cannot be read it has nothing: no
// role and no rights.
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
