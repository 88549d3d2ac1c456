package registry

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// CredentialKind says what holds a credential.
type CredentialKind string

// The kinds of credentials.
const (
	CredentialKey    CredentialKind = "key"    // an API key: a program or a person
	CredentialDevice CredentialKind = "device" // a paired device
)

const (
	// DefaultCredentials is how many credentials a tenant may have unless Limits say otherwise.
	DefaultCredentials = 10_000

	// CredentialIdle is how long a credential lives that nobody uses. Use renews it; the end of a credential that has
	// one stays what it is.
	CredentialIdle = 400 * 24 * time.Hour

	// MaxCredentialUpdates is how often an update of a credential is tried while others come between.
	MaxCredentialUpdates = 50

	// maxApproved is how many tools of a device may be approved; maxScopes how long the globs of a credential may be.
	maxApproved = 512
	maxScopes   = 4 << 10
	maxRoles    = 16
)

// Credential is what the store knows of an API key or of the credential of a device. The secret itself is not in it.
type Credential struct {
	Tenant string
	ID     string // not secret; credentials are listed in the order of their ids
	Kind   CredentialKind
	Digest string // the SHA-256 of the secret, in hexadecimal digits

	Name      string   // for people
	Roles     []string // by name
	User      string   // empty: nobody in particular
	DeviceID  string   // the only device it can be; empty: any
	Tools     string   // globs over names of tools, separated by spaces; empty: all
	Context   string   // who takes part in the conversations it opens; empty: one person
	Person    bool     // a person's program makes its calls over MCP, not a model
	PublicKey []byte   // the Ed25519 key a device must sign with; empty: it need not

	// Approved are the tools a device may offer, as they were defined when they were approved.
	Approved []ApprovedTool

	CreatedAt time.Time // by the store's clock, in milliseconds
	CreatedBy string    // the name of the credential that made it
	ExpiresAt time.Time // zero: never, if it is used
	LastUsed  time.Time // by the store's clock, about; zero: never
}

// ApprovedTool is a tool of a device that somebody has approved.
type ApprovedTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // ToolSpec.Hash of the approved definition
}

// Clone returns a copy that shares no memory that can be written.
func (c Credential) Clone() Credential {
	c.Roles, c.PublicKey, c.Approved = slices.Clone(c.Roles), slices.Clone(c.PublicKey), slices.Clone(c.Approved)
	return c
}

// MemorySize returns about how many bytes the credential takes.
func (c Credential) MemorySize() int {
	size := 512 + len(c.Tenant) + len(c.ID) + len(c.Digest) + len(c.Name) + len(c.User) + len(c.DeviceID) +
		len(c.Tools) + len(c.Context) + len(c.PublicKey) + len(c.CreatedBy)
	for _, role := range c.Roles {
		size += 16 + len(role)
	}
	for _, tool := range c.Approved {
		size += 32 + len(tool.Name) + len(tool.Hash)
	}
	return size
}

// Validate reports whether the credential can be stored. The error is CodeInvalidRequest.
func (c Credential) Validate() error {
	if err := (Key{Tenant: c.Tenant, Session: "x"}).Validate(); err != nil {
		return err
	}
	if !IsName(c.ID, 64, "_-") {
		return Errorf(CodeInvalidRequest, "The id of a credential has up to 64 letters, digits, _ and -.")
	}
	if c.Kind != CredentialKey && c.Kind != CredentialDevice {
		return Errorf(CodeInvalidRequest, "kind: must be %s or %s.", CredentialKey, CredentialDevice)
	}
	digest, err := hex.DecodeString(c.Digest)
	if err != nil || len(digest) != 32 || c.Digest != strings.ToLower(c.Digest) {
		return Errorf(CodeInvalidRequest, "The digest of a credential is a SHA-256 in hexadecimal digits.")
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
			return Errorf(CodeInvalidRequest, "%s: may have at most %d bytes.", field.name, field.limit)
		}
		if field.name != "public_key" && !utf8.ValidString(field.text) {
			return Errorf(CodeInvalidRequest, "%s: must be UTF-8.", field.name)
		}
	}
	if len(c.Roles) > maxRoles || len(strings.Join(c.Roles, "")) > maxRoles*maxAttributeLen {
		return Errorf(CodeInvalidRequest, "roles: are too many.")
	}
	return c.validateApproved()
}

func (c Credential) validateApproved() error {
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

// CredentialQuery selects credentials of one tenant, in order of their ids. Empty fields do not restrict.
type CredentialQuery struct {
	Tenant   string
	Kind     CredentialKind
	User     string
	DeviceID string
	After    string // the id that a page ended with
	Limit    int    // at most this many; zero means 100
}

// Selects reports whether a credential is one of those asked for, wherever the page begins.
func (q CredentialQuery) Selects(c Credential) bool {
	return c.Tenant == q.Tenant && (q.Kind == "" || c.Kind == q.Kind) && (q.User == "" || c.User == q.User) &&
		(q.DeviceID == "" || c.DeviceID == q.DeviceID)
}

// ChangedCredential applies a change to a copy of a credential, for stores. What tells it from others does not change.
func ChangedCredential(c Credential, change func(*Credential) error) (Credential, error) {
	changed := c.Clone()
	if err := change(&changed); err != nil {
		return Credential{}, err
	}
	changed.Tenant, changed.ID, changed.Kind, changed.Digest = c.Tenant, c.ID, c.Kind, c.Digest
	changed.User, changed.DeviceID = c.User, c.DeviceID
	changed.CreatedAt, changed.CreatedBy, changed.LastUsed = c.CreatedAt, c.CreatedBy, c.LastUsed
	return changed, changed.Validate()
}

// CredentialStore keeps credentials, what was revoked of each tenant, and the log of changes, which is one for the
// whole fleet. All methods are safe for concurrent use and honour their context. A failure of the store is an *Error
// with CodeStoreUnavailable. A credential that has expired, or that was not used for CredentialIdle, is not there any
// more.
type CredentialStore interface {
	// CreateCredential stores a new credential, whose id nobody may have used, and returns it with the time.
	// CodeInvalidRequest: it is malformed, has expired, or its tenant has as many as it may have. ErrDevicePaired: it
	// is that of a device whose id another one has, which is found in the same step.
	CreateCredential(ctx context.Context, c Credential) (Credential, error)

	// CredentialByDigest returns the credential with a digest, ErrNoCredential if there is none. It is cheap.
	CredentialByDigest(ctx context.Context, digest string) (Credential, error)

	// Credential returns the credential with an id, ErrNoCredential if there is none.
	Credential(ctx context.Context, tenant, id string) (Credential, error)

	// Credentials returns a page of credentials, and where the next one begins, empty on the last. A page may hold
	// fewer than the limit, even none, and still have a next one.
	Credentials(ctx context.Context, q CredentialQuery) ([]Credential, string, error)

	// PairedDevices returns the credentials of paired devices with these device ids, in no order. It reads no others,
	// so it is cheap, and most so for ids that nobody paired.
	PairedDevices(ctx context.Context, tenant string, deviceIDs ...string) ([]Credential, error)

	// PairedIDs returns the device ids of the paired devices of a tenant, in no order, perhaps with some whose
	// credentials expired lately. They are as many as the tenant may have credentials, so it is for people's requests.
	PairedIDs(ctx context.Context, tenant string) ([]string, error)

	// UpdateCredential changes a credential: its name, roles, tools, context, public key, approved tools and end.
	// change is called with the credential as it is, and once more whenever another update came between; its error ends
	// the update. After MaxCredentialUpdates the update fails with ErrCredentialChanges. What TouchCredentials notes
	// meanwhile stays. The change is appended to the log, not as a revocation. It returns what is stored now.
	UpdateCredential(
		ctx context.Context, tenant, id string, change func(*Credential) error,
	) (Credential, error)

	// RevokeCredential removes a credential, and appends that to the log. It returns what was removed; ErrNoCredential:
	// there was none. If it fails otherwise it is to be called again.
	RevokeCredential(ctx context.Context, tenant, id string) (Credential, error)

	// TouchCredentials notes that the credentials with these digests were used just now.
	TouchCredentials(ctx context.Context, digests ...string) error

	// AppendChange appends to the log, and returns the change with its place and time. A revocation of a user, a device
	// or a JWT is remembered for the tenant first; ErrTooManyRevocations: there is no room, and nothing was done.
	AppendChange(ctx context.Context, c CredentialChange) (CredentialChange, error)

	// Revocations returns the revocations of users, devices and JWTs that are remembered for a tenant, each with its
	// last time and without a place, in no order. One that is in the log is there, whatever has left the log since.
	Revocations(ctx context.Context, tenant string) ([]CredentialChange, error)

	// Changes returns the changes after a place, the oldest first, at most so many; zero means 100. Among them may be
	// some of another release, of kinds that this one does not know.
	Changes(ctx context.Context, after FeedID, limit int) (ChangePage, error)
}

// ErrNoCredential is returned when there is no such credential, or no longer.
var ErrNoCredential = Errorf(CodeNotFound, "There is no such credential, or it has expired or was revoked.")

// ErrCredentialExists is the error for a credential whose digest is stored already.
var ErrCredentialExists = Errorf(CodeInvalidRequest, "There is a credential with this secret already. Make another.")

// ErrDevicePaired is the error for a device whose id a paired device has.
var ErrDevicePaired = Errorf(CodeInvalidRequest, "A device with this id was paired meanwhile. Ask with another "+
	"device_id or, if it is the same device, ask again and have it approved with replace.")

// ErrCredentialChanges is the error for an update while others keep changing the credential.
var ErrCredentialChanges = Errorf(CodeBusy, "Others change the credential. Try again.")

// ErrCredentialExpires is the error for a credential that would have ended before it is stored.
var ErrCredentialExpires = Errorf(CodeInvalidRequest, "The credential would have expired already. Give a later time.")

// ErrTooManyCredentials is the error for a tenant that has as many credentials as it may have.
func ErrTooManyCredentials(limit int) error {
	return Errorf(CodeInvalidRequest,
		"The tenant has %d credentials, which is as many as it may have. Revoke some that are not used.", limit)
}

const (
	// DefaultChangeTTL is how long a change is kept, and a revocation remembered, unless Limits say otherwise.
	DefaultChangeTTL = 24 * time.Hour

	// ChangeCap is how many changes the log has, roughly. Beyond it the oldest are forgotten: whoever has not read them
	// notices, and reads anew what has changed.
	ChangeCap = 100_000

	// DefaultRevocations is how many users, devices and JWTs of a tenant, of each as many, are remembered as revoked
	// unless Limits say otherwise. Each takes up to 256 bytes and what a map needs, in the store and in every pod.
	DefaultRevocations = 10_000
)

// ChangeKind says what has changed.
type ChangeKind string

// The kinds of changes, and what CredentialChange.ID is.
const (
	ChangeCredential ChangeKind = "credential" // the id of a credential
	ChangeUser       ChangeKind = "user"       // a user: every identity of theirs that was issued until then is meant
	ChangeDevice     ChangeKind = "device"     // a device id, as a user is
	ChangeJWT        ChangeKind = "jwt"        // the jti of a token
)

// RememberedKinds returns the kinds whose revocations a store remembers for each tenant. That of a credential needs no
// memory: the credential is gone.
func RememberedKinds() []ChangeKind { return []ChangeKind{ChangeUser, ChangeDevice, ChangeJWT} }

// CredentialChange says that something was revoked, or is to be read again.
type CredentialChange struct {
	Place FeedID // where it is in the log
	Seq   int64  // grows by one with every change, so that a reader notices if it has missed some

	At      time.Time // by the store's clock, in milliseconds
	Tenant  string
	Kind    ChangeKind
	ID      string
	Revoked bool // false: it is to be read again
}

// Validate reports whether the change can be stored. The error is CodeInvalidRequest.
func (c CredentialChange) Validate() error {
	if err := (Key{Tenant: c.Tenant, Session: "x"}).Validate(); err != nil {
		return err
	}
	switch c.Kind {
	case ChangeCredential, ChangeUser, ChangeDevice, ChangeJWT:
	default:
		return Errorf(CodeInvalidRequest, "There is no kind of change %.40q.", c.Kind)
	}
	if c.ID == "" || len(c.ID) > maxAttributeLen || !utf8.ValidString(c.ID) {
		return Errorf(CodeInvalidRequest, "What is revoked is named by 1 to %d bytes of UTF-8.", maxAttributeLen)
	}
	return nil
}

// Remembered reports whether the store remembers the change for its tenant, beside the log.
func (c CredentialChange) Remembered() bool { return c.Revoked && c.Kind != ChangeCredential }

// ErrTooManyRevocations is the error for a tenant of which as many revocations of a kind are remembered as may be.
// after is how long it takes until the oldest is forgotten.
func ErrTooManyRevocations(kind ChangeKind, limit int, after time.Duration) error {
	advice := "Ask the operator for a larger FARHAND_MAX_REVOCATIONS, and let the issuer of tokens withdraw its keys " +
		"if it cannot wait."
	if kind == ChangeJWT {
		advice = "Revoke the users whose tokens they are by user_id instead: that ends all tokens of a user at once."
	}
	e := Errorf(CodeRateLimited, "Nothing was revoked: %d revocations of the kind %s are remembered for this tenant, "+
		"which is as many as may be. %s", limit, kind, advice)
	e.RetryAfter = after
	return e
}

// ChangePage is a part of the change log.
type ChangePage struct {
	Changes []CredentialChange
	Last    int64 // Seq of the last change of the whole log, or of one a moment before it; zero: there was none
}
