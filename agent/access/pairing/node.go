package pairing

import (
	"crypto/ed25519"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
)

// Node is an OpenClaw node that wants to connect. Its signature was checked: it has the private key of PublicKey. All
// other content is not trusted.
type Node struct {
	PublicKey  ed25519.PublicKey
	DeviceID   string // the SHA-256 of PublicKey, in lower-case hexadecimal
	DeviceName string // for people
	Platform   string // for people
	Tools      []string

	// At most one is used, in this order. All empty: the node asks to be paired.
	Token          string // a token of Farhand with the role device, or the credential of the paired node
	BootstrapToken string // of a setup code; single use
}

// AdmittedNode is a node that may connect.
type AdmittedNode struct {
	Identity auth.Identity
	Token    string // the node's new credential, returned only once; empty: it has one
}

// NodePending is the error for a node whose request waits for an approver. The node connects again later.
type NodePending struct {
	ID        string // of the request; the same each time the node asks before the decision
	Code      string // the approver types it; the same each time
	ExpiresIn time.Duration
}

// Error implements error.
func (p *NodePending) Error() string {
	return "the node waits to be paired: approve the code " + p.Code
}
