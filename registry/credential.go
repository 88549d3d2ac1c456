package registry

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// CredentialKind is the kind of a credential's holder.
type CredentialKind string

// The kinds of credentials.
const (
	CredentialKey    CredentialKind = "key"    // an API key: a program or a person
	CredentialDevice CredentialKind = "device" // a paired device
)

const (
	// CredentialIdle is the life of an unused credential. Use renews it. An ExpiresAt of the credential still applies.
	CredentialIdle = 400 * 24 * time.Hour

	// maxApproved is the limit of a device's approved tools. maxScopes is the limit of a credential's globs in bytes.
	maxApproved = 512
	maxScopes   = 4 << 10
	maxRoles    = 16
)

// Credential is the stored record of an API key or a device's credential. It does not contain the secret.
type Credential struct {
	Tenant string
	ID     string // not secret; credentials are listed in the order of their ids
	Kind   CredentialKind
	Digest string // the SHA-256 of the secret, in hexadecimal digits

	Name      string   // for people
	Roles     []string // by name
	User      string   // empty: no particular user
	DeviceID  string   // the only device it may connect as; empty: any
	Tools     string   // globs over names of tools, separated by spaces; empty: all
	Context   string   // the participants of conversations it opens; empty: one person
	Person    bool     // its MCP calls come from a person's program, not from a model
	PublicKey []byte   // the Ed25519 key that a device must sign with; empty: no signature needed

	// Approved lists the tools that a device may offer, with the definitions that were approved.
	Approved []ApprovedTool

	CreatedAt time.Time // by the store's clock, in milliseconds
	CreatedBy string    // the name of the credential that made it
	ExpiresAt time.Time // zero: never, if it is used
	LastUsed  time.Time // by the store's clock, approximate; zero: never

	// Former is the digest of the secret before the last rotation, which also works until FormerEnds. Empty: none.
	// FormerUsed is when it was last used; only Credential and Credentials of a store fill it in.
	Former     string
	FormerEnds time.Time
	FormerUsed time.Time

	// Renew asks that a device gets a new secret when it next connects. Only OpenClaw nodes do.
	Renew bool `json:",omitempty"`
}

// Rotation gives a credential a new secret.
type Rotation struct {
	Digest string // of the new secret

	// Overlap is how much longer the former secret works, at most MaxOverlap. Zero: it ends at once.
	Overlap time.Duration

	// Keep is the digest of the secret that works during the overlap: the current one or the former one. The other ends
	// at once. Empty: the current one.
	Keep string
}

// MaxOverlap is the longest overlap of the secrets of a credential.
const MaxOverlap = 90 * 24 * time.Hour

// ApprovedTool is an approved tool of a device.
type ApprovedTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // of the definition
}

// Clone returns a copy that shares no writable memory.
func (c Credential) Clone() Credential {
	c.Roles, c.PublicKey, c.Approved = slices.Clone(c.Roles), slices.Clone(c.PublicKey), slices.Clone(c.Approved)
	return c
}

// MemorySize returns the approximate size of the credential in bytes.
func (c Credential) MemorySize() int {
	size := 512 + len(c.Tenant) + len(c.ID) + len(c.Digest) + len(c.Name) + len(c.User) + len(c.DeviceID) +
		len(c.Tools) + len(c.Context) + len(c.PublicKey) + len(c.CreatedBy) + len(c.Former)
	for _, role := range c.Roles {
		size += 16 + len(role)
	}
	for _, tool := range c.Approved {
		size += 32 + len(tool.Name) + len(tool.Hash)
	}
	return size
}

// Validate reports whether the credential can be stored. It fails with CodeInvalidRequest.
func (c Credential) Validate() error {
	if err := (Key{Tenant: c.Tenant, Session: "x"}).Validate(); err != nil {
		return err
	}
	if !IsName(c.ID, 64, "_-") {
		return Errorf(CodeInvalidRequest, "A credential's id must have 1 to 64 letters, digits, _ and -.")
	}
	if c.Kind != CredentialKey && c.Kind != CredentialDevice {
		return Errorf(CodeInvalidRequest, "kind: must be %s or %s.", CredentialKey, CredentialDevice)
	}
	if !isDigest(c.Digest) || c.Former != "" && !isDigest(c.Former) {
		return Errorf(CodeInvalidRequest, "A credential's digest must be a SHA-256 in hexadecimal digits.")
	}
	for _, field := range [...]struct {
		name, text string
		limit      int
	}{
		{"name", c.Name, maxAttributeLen}, {"user", c.User, maxAttributeLen},
		{"device_id", c.DeviceID, maxAttributeLen}, {"tools", c.Tools, maxScopes},
		{"context", c.Context, maxAttributeLen}, {"created_by", c.CreatedBy, maxAttributeLen},
		{"public_key", string(c.PublicKey), maxAttributeLen},
	} {
		if len(field.text) > field.limit {
			return Errorf(CodeInvalidRequest, "%s: must have at most %d bytes.", field.name, field.limit)
		}
		if field.name != "public_key" && !utf8.ValidString(field.text) {
			return Errorf(CodeInvalidRequest, "%s: must be valid UTF-8.", field.name)
		}
	}
	if len(c.Roles) > maxRoles || len(strings.Join(c.Roles, "")) > maxRoles*maxAttributeLen {
		return Errorf(CodeInvalidRequest, "roles: there are too many.")
	}
	if len(c.Approved) > maxApproved {
		return Errorf(CodeInvalidRequest, "At most %d tools of a device may be approved.", maxApproved)
	}
	for _, tool := range c.Approved {
		if len(tool.Name)+len(tool.Hash) > maxAttributeLen {
			return Errorf(CodeInvalidRequest, "The name of an approved tool is too long.")
		}
	}
	return nil
}

func isDigest(text string) bool {
	digest, err := hex.DecodeString(text)
	return err == nil && len(digest) == 32 && text == strings.ToLower(text)
}

// CredentialQuery selects credentials of one tenant, in order of their ids. Empty fields do not restrict.
type CredentialQuery struct {
	Tenant   string
	Kind     CredentialKind
	User     string
	DeviceID string
	After    string // the id that the previous page ended with
	Limit    int    // at most this many; zero means 100
}

// Selects reports whether a credential matches the query, wherever the page begins.
func (q CredentialQuery) Selects(c Credential) bool {
	return c.Tenant == q.Tenant && (q.Kind == "" || c.Kind == q.Kind) && (q.User == "" || c.User == q.User) &&
		(q.DeviceID == "" || c.DeviceID == q.DeviceID)
}

// ChangedCredential applies a change to a copy of a credential, for stores. Identifying fields keep their values. A
// change can bring FormerEnds forward.
func ChangedCredential(c Credential, change func(*Credential) error) (Credential, error) {
	changed := c.Clone()
	if err := change(&changed); err != nil {
		return Credential{}, err
	}
	changed.Tenant, changed.ID, changed.Kind, changed.Digest = c.Tenant, c.ID, c.Kind, c.Digest
	changed.User, changed.DeviceID = c.User, c.DeviceID
	changed.CreatedAt, changed.CreatedBy, changed.LastUsed = c.CreatedAt, c.CreatedBy, c.LastUsed
	if changed.FormerEnds.IsZero() || changed.FormerEnds.After(c.FormerEnds) {
		changed.FormerEnds = c.FormerEnds
	}
	changed.Former, changed.FormerUsed = c.Former, c.FormerUsed
	return changed, changed.Validate()
}

// CredentialStore keeps credentials, each tenant's revocations, and one change log for the whole fleet. A credential
// that has expired, or was not used for CredentialIdle, no longer exists.
type CredentialStore interface {
	// CreateCredential stores a new credential, whose id must be unused, and returns it with the time. It fails with
	// CodeInvalidRequest if the credential is malformed or expired, or the tenant is at its limit. It fails with
	// ErrDevicePaired if another paired device has the device id; this check is part of the same atomic step.
	CreateCredential(ctx context.Context, c Credential) (Credential, error)

	// CredentialByDigest returns the credential with a digest, or ErrNoCredential. It is cheap. For a former secret it
	// returns the credential as this secret has it: with its digest, and its end.
	CredentialByDigest(ctx context.Context, digest string) (Credential, error)

	// Credential returns the credential with an id, or ErrNoCredential.
	Credential(ctx context.Context, tenant, id string) (Credential, error)

	// Credentials returns a page of credentials and the start of the next one, empty on the last. A page may have fewer
	// entries than the limit, even none, and still have a next one.
	Credentials(ctx context.Context, q CredentialQuery) ([]Credential, string, error)

	// PairedDevices returns the credentials of paired devices with these device ids, in no order. It reads no other
	// credentials, so it is cheap, and cheapest for ids that are not paired.
	PairedDevices(ctx context.Context, tenant string, deviceIDs ...string) ([]Credential, error)

	// PairedIDs returns the device ids of a tenant's paired devices, in no order. Some may have expired recently. There
	// can be as many as the tenant's limit of credentials, so use it only for people's requests.
	PairedIDs(ctx context.Context, tenant string) ([]string, error)

	// UpdateCredential changes a credential: its name, roles, tools, context, public key, approved tools, end and
	// Renew. It can also bring the end of the former secret forward. It calls change with the current credential, and
	// again after each update that came in between. An error from change ends the update. After documents.MaxTries it
	// fails with ErrCredentialChanges. Concurrent TouchCredentials are kept. The change is logged, but not as a
	// revocation. It returns the stored credential.
	UpdateCredential(
		ctx context.Context, tenant, id string, change func(*Credential) error,
	) (Credential, error)

	// RotateCredential gives a credential a new secret and returns it. It has at most two: one that was kept, until the
	// overlap ends, and the new one. The change is logged, but not as a revocation. It fails with CodeInvalidRequest if
	// the digest or the overlap is invalid, and with ErrNoCredential if Keep is not a secret of the credential. After
	// another error the new secret may work; rotate again.
	RotateCredential(ctx context.Context, tenant, id string, r Rotation) (Credential, error)

	// RevokeCredential removes a credential with all its secrets and logs the revocation. It returns the removed
	// credential, or ErrNoCredential. After any other error the caller must retry.
	RevokeCredential(ctx context.Context, tenant, id string) (Credential, error)

	// TouchCredentials records that the credentials with these digests were used now.
	TouchCredentials(ctx context.Context, digests ...string) error

	ChangeStore
}

// ChangeStore is the log of changes of credentials, and the revocations of the tenants.
type ChangeStore interface {
	// AppendChange appends to the log and returns the change with its place and time. A revocation of a user, a device
	// or a JWT is first stored for the tenant. It fails with ErrTooManyRevocations, and changes nothing, if there is no
	// room.
	AppendChange(ctx context.Context, c CredentialChange) (CredentialChange, error)

	// Revocations returns a tenant's stored revocations of users, devices and JWTs, each with its last time and without
	// a place, in no order. A logged revocation is included even if it has left the log since.
	Revocations(ctx context.Context, tenant string) ([]CredentialChange, error)

	// Changes returns at most limit changes after a place, the oldest first; zero means 100. It may return kinds from
	// another release that this release does not know.
	Changes(ctx context.Context, after FeedID, limit int) (ChangePage, error)
}

// Errors of a CredentialStore.
var (
	ErrNoCredential     = Errorf(CodeNotFound, "The credential does not exist, has expired or was revoked.")
	ErrCredentialExists = Errorf(CodeInvalidRequest, "A credential with this secret already exists. Create another "+
		"one.")
	ErrDevicePaired = Errorf(CodeInvalidRequest, "A device with this id was paired in the meantime. Use another "+
		"device_id or, if it is the same device, request again and have it approved with replace.")
	ErrCredentialChanges = Errorf(CodeBusy, "The credential is being changed concurrently. Retry.")
	ErrCredentialExpires = Errorf(CodeInvalidRequest, "The credential would already have expired. Set a later time.")
)

// ErrTooManyCredentials is the error if a tenant is at its limit of credentials.
func ErrTooManyCredentials(limit int) error {
	return Errorf(CodeInvalidRequest,
		"The tenant has reached its limit of %d credentials. Revoke unused ones.", limit)
}

// ChangeCap is the approximate size of the log in changes. Beyond it the oldest are dropped. A reader that missed them
// notices and reloads the credentials.
const ChangeCap = 100_000

// ChangeKind is the kind of a changed object.
type ChangeKind string

// The kinds of changes, and what CredentialChange.ID is.
const (
	ChangeCredential ChangeKind = "credential" // the id of a credential
	ChangeUser       ChangeKind = "user"       // a user: all of the user's identities issued before the change
	ChangeDevice     ChangeKind = "device"     // a device id, handled like a user
	ChangeJWT        ChangeKind = "jwt"        // the jti of a token
)

// RememberedKinds returns the kinds whose revocations a store keeps for each tenant. A revoked credential needs no
// entry: it is deleted.
func RememberedKinds() []ChangeKind { return []ChangeKind{ChangeUser, ChangeDevice, ChangeJWT} }

// CredentialChange says that an object was revoked, or must be read again.
type CredentialChange struct {
	Place FeedID // its position in the log
	Seq   int64  // grows by one with every change, so that a reader notices gaps

	At      time.Time // by the store's clock, in milliseconds
	Tenant  string
	Kind    ChangeKind
	ID      string
	Revoked bool // false: read it again

	Device string // with the revoked credential of a paired device: its device id
	User   string `json:",omitempty"` // with Device: its user, if it has one; earlier releases do not say it
}

// Validate reports whether the change can be stored. It fails with CodeInvalidRequest.
func (c CredentialChange) Validate() error {
	if err := (Key{Tenant: c.Tenant, Session: "x"}).Validate(); err != nil {
		return err
	}
	switch c.Kind {
	case ChangeCredential, ChangeUser, ChangeDevice, ChangeJWT:
	default:
		return Errorf(CodeInvalidRequest, "The kind of change %.40q is unknown.", c.Kind)
	}
	if c.ID == "" || len(c.ID) > maxAttributeLen || !utf8.ValidString(c.ID) {
		return Errorf(CodeInvalidRequest, "The revoked id must have 1 to %d bytes of UTF-8.", maxAttributeLen)
	}
	return nil
}

// Remembered reports whether the store keeps the change for its tenant, in addition to the log.
func (c CredentialChange) Remembered() bool { return c.Revoked && c.Kind != ChangeCredential }

// ErrTooManyRevocations is the error if a tenant is at its limit of stored revocations of a kind. after is the time
// until the oldest is dropped.
func ErrTooManyRevocations(kind ChangeKind, limit int, after time.Duration) error {
	advice := "Ask the operator to raise FARHAND_MAX_REVOCATIONS. If it is urgent, rotate the token issuer's keys."
	if kind == ChangeJWT {
		advice = "Revoke the users by user_id instead: that revokes all tokens of a user."
	}
	return Errorf(CodeRateLimited, "Nothing was revoked: this tenant has reached its limit of %d revocations of the "+
		"kind %s. %s", limit, kind, advice).RetryIn(after)
}

// ChangePage is a part of the change log.
type ChangePage struct {
	Changes []CredentialChange
	Last    int64 // Seq of the last change of the whole log, possibly slightly out of date; zero: none
}

// IsStoredCredential reports whether the name of an identity in quotas is that of an API key or of a device's
// credential. Holders of the shared token are one identity, and may be a fleet.
func IsStoredCredential(identity string) bool {
	return strings.HasPrefix(identity, "key:") || strings.HasPrefix(identity, "device:")
}
