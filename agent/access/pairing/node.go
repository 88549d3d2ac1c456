package pairing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// Node is an OpenClaw node that wants to connect. Its signature was checked: it has the private key of PublicKey. All
// other content is not trusted.
type Node struct {
	PublicKey  ed25519.PublicKey
	DeviceID   string // the SHA-256 of PublicKey, in lower-case hexadecimal
	DeviceName string // for people
	Platform   string // for people
	Client     string // for people: the program and its version
	Tools      []string

	// The credentials it sent. AdmitNode uses the first that is not empty. All empty: the node asks to be paired.
	DeviceToken    string // auth.deviceToken: the credential of the paired node
	Token          string // auth.token: a token of Farhand with the role device, or the credential of the paired node
	BootstrapToken string // auth.bootstrapToken, of a setup code

	// Reserve reserves what the node's connection needs. AdmitNode calls it before it makes a new secret, with the
	// identity that the node will have, and at most once. If it fails, no secret is made, and AdmitNode fails with its
	// error. Nil: nothing is reserved.
	Reserve func(auth.Identity) error
}

// reserve calls Reserve for a node that is about to get a secret of a credential.
func (n Node) reserve(c registry.Credential) error {
	if n.Reserve == nil {
		return nil
	}
	id, err := auth.IdentityOf(c)
	if err != nil {
		return err
	}
	return n.Reserve(id)
}

// NodeID returns the device id of a node with this key.
func NodeID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// IsNode reports whether a credential belongs to an OpenClaw node, whose device id follows from its key.
func IsNode(c registry.Credential) bool {
	return c.Kind == registry.CredentialDevice && len(c.PublicKey) == ed25519.PublicKeySize &&
		c.DeviceID == NodeID(c.PublicKey)
}

// AdmittedNode is a node that may connect.
type AdmittedNode struct {
	Identity auth.Identity
	Token    string // the node's new credential, returned only once; empty: it has one
}

// NodePending is the error for a node whose request waits for an approver. The node connects again later.
type NodePending struct {
	ID        string // of the request; the same each time the node asks before the decision
	Code      string // the approver types it; the same each time. ID ends with it, in lower case and without the hyphen
	ExpiresIn time.Duration
}

// Error implements error.
func (p *NodePending) Error() string {
	return "the node waits to be paired: approve the code " + p.Code
}

// NodeReason is why a node may not connect.
type NodeReason string

// The reasons, and the code that OpenClaw's protocol has for each in `details.code`.
const (
	// NodeToken: Node.Token is wrong, or a credential of another device. AUTH_TOKEN_MISMATCH.
	NodeToken NodeReason = "token"

	// NodeOwnToken: Token is right, but the node is paired and must use its own credential. AUTH_TOKEN_MISMATCH with
	// canRetryWithDeviceToken.
	NodeOwnToken NodeReason = "own token"

	// NodeDeviceToken: the node's credential is wrong, was revoked or has expired, or belongs to another key.
	// AUTH_DEVICE_TOKEN_MISMATCH: the node forgets it.
	NodeDeviceToken NodeReason = "device token"

	NodeRole    NodeReason = "role"          // Token lacks the role device. AUTH_SCOPE_MISMATCH.
	NodeSetup   NodeReason = "setup code"    // the setup code is wrong, used or expired. AUTH_BOOTSTRAP_TOKEN_INVALID.
	NodeLimited NodeReason = "wrong tokens"  // its source sent too many wrong tokens. AUTH_RATE_LIMITED.
	NodeUnknown NodeReason = "no credential" // it has none, and pairing is off. AUTH_TOKEN_MISSING.

	// NodeRejected: an approver rejected its request. PAIRING_REQUIRED, without wait_then_retry.
	NodeRejected NodeReason = "rejected"
)

// NodeRefused is the error for a node that may not connect until a person changes something. Other errors of AdmitNode
// are *registry.Error: with CodeRateLimited or CodeStoreUnavailable the node may retry (UNAVAILABLE), and with
// CodeInvalidRequest its name or platform is malformed.
type NodeRefused struct {
	Reason NodeReason
	Err    error // its text says what to do
}

// Error implements error.
func (r *NodeRefused) Error() string { return r.Err.Error() }

// Unwrap returns the error with its code.
func (r *NodeRefused) Unwrap() error { return r.Err }

func refuseNode(reason NodeReason, err error) error { return &NodeRefused{reason, err} }

func refuseNodef(reason NodeReason, format string, args ...any) error {
	return refuseNode(reason, registry.Errorf(registry.CodeUnauthenticated, format, args...))
}
