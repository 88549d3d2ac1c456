package auth

import (
	"encoding/json"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
)

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
