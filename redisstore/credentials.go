package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

var credentialIdle = millis(registry.CredentialIdle)

// CreateCredential implements registry.CredentialStore. The credential is written before it is listed, so that readers
// of the list may drop members without a credential.
func (s *Store) CreateCredential(ctx context.Context, c registry.Credential) (registry.Credential, error) {
	if err := c.Validate(); err != nil {
		return registry.Credential{}, err
	}
	text, err := encodeCredential(c)
	if err != nil {
		return registry.Credential{}, registry.AsError(err)
	}
	answer, err := s.conn.Eval(ctx, scriptCredentialCreate, []string{credentialKey(c.Digest)},
		text, expiryMillis(c), credentialIdle)
	if err != nil {
		return registry.Credential{}, redisconn.Unavailable("create credential", err)
	}
	made := answer.Int()
	switch made {
	case 0:
		return registry.Credential{}, registry.ErrCredentialExpires
	case -1:
		return registry.Credential{}, registry.ErrCredentialExists
	}
	if err := s.listCredential(ctx, c, true); err != nil {
		_, failed := s.conn.Do(ctx, "DEL", credentialKey(c.Digest))
		return registry.Credential{}, errors.Join(err, redisconn.Unavailable("remove credential", failed))
	}
	c = c.Clone()
	c.CreatedAt, c.LastUsed = time.UnixMilli(made).UTC(), time.Time{}
	return c, nil
}

// listCredential adds a new credential to the lists of its tenant, or renews its entries there.
func (s *Store) listCredential(ctx context.Context, c registry.Credential, isNew bool) error {
	member, pairs := memberOf(c), ""
	if c.Kind == registry.CredentialDevice {
		pairs = member.device
	}
	added, err := s.conn.Eval(ctx, scriptCredentialsAdd, credentialsKeys(c.Tenant),
		member.text(), member.deviceText(), expiryMillis(c), credentialIdle, s.credentials, pairs, flag(isNew))
	if err != nil {
		return redisconn.Unavailable("list credential", err)
	}
	switch added.Int() {
	case 0:
		return registry.ErrTooManyCredentials(s.credentials)
	case -1:
		return registry.ErrDevicePaired
	}
	return nil
}

// CredentialByDigest implements registry.CredentialStore.
func (s *Store) CredentialByDigest(ctx context.Context, digest string) (registry.Credential, error) {
	c, _, err := s.readCredential(ctx, digest)
	return c, err
}

// readCredential returns a credential and its version.
func (s *Store) readCredential(ctx context.Context, digest string) (registry.Credential, string, error) {
	answer, err := s.conn.Do(ctx, "HGETALL", credentialKey(digest))
	if err != nil {
		return registry.Credential{}, "", redisconn.Unavailable("read credential", err)
	}
	hash := answer.Map()
	if len(hash) == 0 {
		return registry.Credential{}, "", registry.ErrNoCredential
	}
	c, err := parseCredential(digest, hash)
	if err != nil {
		return registry.Credential{}, "", registry.AsError(err)
	}
	return c, hash[fieldCredentialVersion], nil
}

// Credential implements registry.CredentialStore.
func (s *Store) Credential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	member, err := s.credentialMember(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	return s.CredentialByDigest(ctx, member.digest)
}

// credentialMember finds a credential on the list of its tenant.
func (s *Store) credentialMember(ctx context.Context, tenant, id string) (credentialMember, error) {
	answer, err := s.conn.Do(ctx, "ZRANGEBYLEX", credentialsKeys(tenant)[0], "["+id+" ", "("+id+"!", "LIMIT", 0, 1)
	if err != nil {
		return credentialMember{}, redisconn.Unavailable("find credential", err)
	}
	listed, found, err := answer.StringParts(1)
	if err != nil {
		return credentialMember{}, redisconn.Unavailable("find credential", err)
	}
	if found {
		if member, ok := parseCredentialMember(listed[0]); ok && member.id == id {
			return member, nil
		}
	}
	return credentialMember{}, registry.ErrNoCredential
}

// UpdateCredential implements registry.CredentialStore.
func (s *Store) UpdateCredential(
	ctx context.Context, tenant, id string, change func(*registry.Credential) error,
) (registry.Credential, error) {
	member, err := s.credentialMember(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	for range registry.MaxCredentialUpdates {
		c, version, err := s.readCredential(ctx, member.digest)
		if err != nil {
			return registry.Credential{}, err
		}
		if c, err = registry.ChangedCredential(c, change); err != nil {
			return registry.Credential{}, err
		}
		switch written, err := s.writeCredential(ctx, c, version); {
		case err != nil:
			return registry.Credential{}, err
		case written:
			if err := s.listCredential(ctx, c, false); err != nil {
				return registry.Credential{}, err
			}
			_, err := s.AppendChange(ctx, registry.CredentialChange{
				Tenant: tenant, Kind: registry.ChangeCredential, ID: id,
			})
			return c, err
		}
	}
	return registry.Credential{}, registry.ErrCredentialChanges
}

// writeCredential replaces a credential if it still has this version. Otherwise it returns false.
func (s *Store) writeCredential(ctx context.Context, c registry.Credential, version string) (bool, error) {
	text, err := encodeCredential(c)
	if err != nil {
		return false, registry.AsError(err)
	}
	written, err := s.conn.Eval(ctx, scriptCredentialUpdate, []string{credentialKey(c.Digest)},
		text, expiryMillis(c), credentialIdle, version)
	if err != nil {
		return false, redisconn.Unavailable("update credential", err)
	}
	switch written.Int() {
	case -1:
		return false, registry.ErrNoCredential
	case -2:
		return false, registry.ErrCredentialExpires
	}
	return written.Int() == 1, nil
}

// RevokeCredential implements registry.CredentialStore. It removes the credential, announces the change, and removes
// the list entry last. If a step fails, the next attempt finds the entry and does the rest.
func (s *Store) RevokeCredential(ctx context.Context, tenant, id string) (registry.Credential, error) {
	member, err := s.credentialMember(ctx, tenant, id)
	if err != nil {
		return registry.Credential{}, err
	}
	c, err := s.CredentialByDigest(ctx, member.digest)
	if errors.Is(err, registry.CodeNotFound) {
		c, err = registry.Credential{Tenant: tenant, ID: id, Digest: member.digest}, nil
	}
	if err != nil {
		return registry.Credential{}, err
	}
	if _, err := s.conn.Do(ctx, "DEL", credentialKey(member.digest)); err != nil {
		return registry.Credential{}, redisconn.Unavailable("remove credential", err)
	}
	if _, err = s.AppendChange(ctx, registry.CredentialChange{
		Tenant: tenant, Kind: registry.ChangeCredential, ID: id, Revoked: true,
	}); err != nil {
		return registry.Credential{}, err
	}
	return c, s.unlistCredentials(ctx, tenant, member)
}

// unlistCredentials removes credentials from the lists of their tenant.
func (s *Store) unlistCredentials(ctx context.Context, tenant string, members ...credentialMember) error {
	args := make([]any, 0, 3*len(members))
	for _, m := range members {
		args = append(args, m.text(), m.deviceText(), m.device)
	}
	_, err := s.conn.Eval(ctx, scriptCredentialsRemove, credentialsKeys(tenant), args...)
	return redisconn.Unavailable("remove credential", err)
}

// TouchCredentials implements registry.CredentialStore. It renews list entries once a day.
func (s *Store) TouchCredentials(ctx context.Context, digests ...string) error {
	pipe := s.conn.Pipeline()
	answers := make([]*redisconn.Command, len(digests))
	for i, digest := range digests {
		answers[i] = pipe.Eval(scriptCredentialTouch, []string{credentialKey(digest)}, credentialIdle)
	}
	if err := pipe.Exec(ctx); err != nil {
		return redisconn.Unavailable("touch credentials", err)
	}
	for i, answer := range answers {
		stored, due, err := answer.StringParts(2)
		if err != nil {
			return redisconn.Unavailable("touch credentials", err)
		}
		if !due {
			continue
		}
		c, err := decodeCredential(digests[i], stored[0])
		if err == nil {
			err = s.listCredential(ctx, c, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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

// expiryMillis returns when a credential expires, in ms; zero if it does not.
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

// text is the member of the list of all credentials. Ids, digests and escaped device ids contain no space, and a space
// sorts before all their characters.
func (m credentialMember) text() string { return m.id + " " + m.digest + " " + m.device }

// deviceText is the member of the list of devices; empty without a device.
func (m credentialMember) deviceText() string {
	if m.device == "" {
		return ""
	}
	return m.device + " " + m.id + " " + m.digest
}

// parseCredentialMember reads a member of the list of all credentials.
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

// parseChange reads an entry of the log of changes. An entry of another release may have an unknown kind or lack a
// number: its reader sees that it has missed something.
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
