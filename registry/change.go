package registry

import (
	"time"
	"unicode/utf8"
)

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
