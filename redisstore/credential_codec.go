package redisstore

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Fields of the hash of a credential; the scripts write them.
const (
	fieldCredential        = "d" // JSON
	fieldCredentialCreated = "c" // ms
	fieldCredentialVersion = "v"
	fieldCredentialUsed    = "u" // ms
)

// storedCredential is the JSON of a credential.
type storedCredential struct {
	Tenant    string                  `json:"t"`
	ID        string                  `json:"i"`
	Kind      registry.CredentialKind `json:"k"`
	Name      string                  `json:"n,omitempty"`
	Roles     []string                `json:"r,omitempty"`
	User      string                  `json:"u,omitempty"`
	DeviceID  string                  `json:"d,omitempty"`
	Tools     string                  `json:"s,omitempty"`
	Context   string                  `json:"c,omitempty"`
	Person    bool                    `json:"m,omitempty"`
	PublicKey []byte                  `json:"p,omitempty"`
	Approved  []registry.ApprovedTool `json:"a,omitempty"`
	CreatedBy string                  `json:"b,omitempty"`
	Expires   int64                   `json:"e,omitempty"` // ms
}

func encodeCredential(c registry.Credential) ([]byte, error) {
	return encodeJSON(storedCredential{
		Tenant: c.Tenant, ID: c.ID, Kind: c.Kind, Name: c.Name, Roles: c.Roles, User: c.User, DeviceID: c.DeviceID,
		Tools: c.Tools, Context: c.Context, Person: c.Person, PublicKey: c.PublicKey, Approved: c.Approved,
		CreatedBy: c.CreatedBy, Expires: expiryMillis(c),
	})
}

// expiryMillis returns when a credential ends, zero if it does not.
func expiryMillis(c registry.Credential) int64 {
	if c.ExpiresAt.IsZero() {
		return 0
	}
	return max(1, c.ExpiresAt.UnixMilli())
}

// parseCredential reads the hash of a credential.
func parseCredential(digest string, h map[string]string) (registry.Credential, error) {
	c, err := decodeCredential(digest, h[fieldCredential])
	c.CreatedAt = timeOf(h[fieldCredentialCreated], time.UnixMilli)
	c.LastUsed = timeOf(h[fieldCredentialUsed], time.UnixMilli)
	return c, err
}

func decodeCredential(digest, text string) (registry.Credential, error) {
	var s storedCredential
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return registry.Credential{}, err
	}
	c := registry.Credential{
		Tenant: s.Tenant, ID: s.ID, Kind: s.Kind, Digest: digest, Name: s.Name, Roles: s.Roles, User: s.User,
		DeviceID: s.DeviceID, Tools: s.Tools, Context: s.Context, Person: s.Person, PublicKey: s.PublicKey,
		Approved: s.Approved, CreatedBy: s.CreatedBy,
	}
	if s.Expires > 0 {
		c.ExpiresAt = time.UnixMilli(s.Expires).UTC()
	}
	return c, c.Validate()
}

// credentialMember is a credential on the lists of its tenant. Its device is escaped, and empty if it has none.
type credentialMember struct{ id, digest, device string }

func memberOf(c registry.Credential) credentialMember {
	return credentialMember{id: c.ID, digest: c.Digest, device: redisconn.Escape(c.DeviceID)}
}

// text is the member of the list of all. Neither an id nor a digest nor an escaped device id has a space, which sorts
// before everything they may have.
func (m credentialMember) text() string { return m.id + " " + m.digest + " " + m.device }

// deviceText is the member of the list of devices, empty if it is not on it.
func (m credentialMember) deviceText() string {
	if m.device == "" {
		return ""
	}
	return m.device + " " + m.id + " " + m.digest
}

// parseCredentialMember reads a member of the list of all.
func parseCredentialMember(text string) (m credentialMember, ok bool) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return credentialMember{}, false
	}
	return credentialMember{id: parts[0], digest: parts[1], device: parts[2]}, true
}

// parseDeviceMember reads a member of the list of devices.
func parseDeviceMember(text string) (m credentialMember, ok bool) {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return credentialMember{}, false
	}
	return credentialMember{id: parts[1], digest: parts[2], device: parts[0]}, true
}

// parseChange reads an entry of the log of changes. One that another release has written may be of a kind, or have no
// number, that this one knows: its reader sees that it has missed something.
func parseChange(place string, fields map[string]string) (registry.CredentialChange, error) {
	id, err := registry.ParseFeedID(place)
	if err != nil {
		return registry.CredentialChange{}, err
	}
	return registry.CredentialChange{
		Place: id, Seq: redisconn.Int(fields["q"]), At: time.UnixMilli(id.Milli).UTC(), Tenant: fields["t"],
		Kind: registry.ChangeKind(fields["k"]), ID: fields["i"], Revoked: fields["r"] == "1",
	}, nil
}
