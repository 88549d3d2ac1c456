package pairing

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"strings"
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

// Times of requests of nodes. A node has no secret to poll with: it connects again, about every 30 s.
const (
	nodeRenewals = 12               // a request lives for at most this many Config.TTL, while its node asks again
	nodeDecided  = time.Hour        // how long an approval waits for its node, and a rejection stands
	nodeGrace    = 10 * time.Minute // how long a new credential can be given again, by the key alone
)

// nodeRetries limits how often nodes of one source may ask again on a pod.
var nodeRetries = auth.Limit{Rate: 10, Burst: 100}

func (n Node) validate() error {
	return registry.Session{DeviceID: n.DeviceID, DeviceName: n.DeviceName, Platform: n.Platform, Name: n.Client}.
		ValidateAttributes()
}

// names returns the names of tools that a request can have. The device registers the others, which then wait.
func (n Node) names() (names []string) {
	for _, name := range n.Tools {
		if len(names) < registry.MaxPairingTools && checkGlob(name) == nil && !isGlob(name) {
			names = append(names, name)
		}
	}
	return names
}

// askAsNode stores the request of a node or, if it is decided, acts on the decision.
func (s *Service) askAsNode(ctx context.Context, r *http.Request, n Node) (AdmittedNode, error) {
	if s.cfg.Mode == ModeOff {
		return AdmittedNode{}, refuseNodef(NodeUnknown,
			"The node needs a token: pairing is off on this gateway (FARHAND_PAIRING).")
	}
	source := s.nodes.Sources.Network(r)
	if !s.retries.Take(source, 1) {
		return AdmittedNode{}, registry.Errorf(registry.CodeRateLimited,
			"Too many nodes of this address wait to be paired. Retry later.").RetryIn(time.Second)
	}
	p, err := s.cfg.Store.NodePairing(ctx, n.DeviceID)
	switch {
	case errors.Is(err, registry.CodeNotFound):
		return AdmittedNode{}, s.pend(ctx, n, source, nil)
	case err != nil:
		return AdmittedNode{}, err
	case p.Collected != "":
		return s.giveAgain(ctx, r, n, p)
	}
	switch StateOf(p) {
	case StateApproved:
		return s.collectAsNode(ctx, r, n, p)
	case StateRejected:
		return AdmittedNode{}, refuseNodef(NodeRejected, "An approver rejected this node. It may ask again %v after "+
			"the decision. To pair it earlier, use a setup code.", nodeDecided)
	default:
		return AdmittedNode{}, s.pend(ctx, n, source, &p)
	}
}

// The id of a node's request ends with its code, because OpenClaw's node host shows people the id, and no other text of
// the gateway. An approver who knows the id can approve the request, so logs have only its beginning.

// pend stores a request or renews the one before, nil if there is none. It returns *NodePending or why it failed.
func (s *Service) pend(ctx context.Context, n Node, source netip.Prefix, before *registry.Pairing) error {
	p := registry.Pairing{
		Source: source.String(), Network: networkOf(source), DeviceID: n.DeviceID, DeviceName: n.DeviceName,
		Platform: n.Platform, Client: n.Client, PublicKey: n.PublicKey, Tools: n.names(),
	}
	if s.cfg.Mode == ModeOpen {
		p.Tenant = registry.DefaultTenant
	}
	if (before == nil || !before.SameAsk(p)) && !s.requests.Take(source, 1) {
		return registry.Errorf(registry.CodeRateLimited, "Too many pairing requests from this address. Retry later.").
			RetryIn(time.Duration(float64(time.Second) / RequestRate().Rate))
	}
	for range codeAttempts {
		p.Code = newCode()
		p.ID, p.CodeDigest = registry.NodePairingID(n.DeviceID, strings.ToLower(p.Code)), codeDigest(p.Code)
		stored, err := s.cfg.Store.AskPairing(ctx, p, s.cfg.TTL, nodeRenewals*s.cfg.TTL)
		switch {
		case errors.Is(err, registry.ErrCodeTaken):
			continue
		case err != nil:
			return err
		case stored.ID == p.ID:
			s.noteAsked(stored, source)
		}
		return &NodePending{
			ID: stored.ID, Code: stored.Code[:codeLength/2] + "-" + stored.Code[codeLength/2:],
			ExpiresIn: min(max(time.Until(stored.ExpiresAt), 0), s.cfg.TTL),
		}
	}
	return registry.ErrPairingsFull
}

// collectAsNode gives an approved node its credential.
func (s *Service) collectAsNode(
	ctx context.Context, r *http.Request, n Node, p registry.Pairing,
) (AdmittedNode, error) {
	credential := auth.NewCredentialID()
	if err := n.reserve(credentialOf(p, credential)); err != nil {
		return AdmittedNode{}, err
	}
	p, err := s.cfg.Store.CollectPairing(ctx, p.ID, credential, nodeGrace)
	if err == nil {
		err = s.stillTrusted(ctx, p)
	}
	if errors.Is(err, registry.CodeNotFound) {
		return AdmittedNode{}, registry.Errorf(registry.CodeBusy, "The approval is no longer valid. Connect again.")
	}
	if err != nil {
		return AdmittedNode{}, err
	}
	secret, err := s.issue(ctx, p, credential)
	if err != nil {
		return AdmittedNode{}, err
	}
	return s.withSecret(ctx, r, n, secret)
}

// giveAgain gives a node that was paired a moment ago another secret: it did not get the first one. A node whose
// credential does not exist asks again.
func (s *Service) giveAgain(
	ctx context.Context, r *http.Request, n Node, p registry.Pairing,
) (AdmittedNode, error) {
	c, err := s.cfg.Store.Credential(ctx, p.Decision.Tenant, p.Collected)
	if errors.Is(err, registry.CodeNotFound) {
		return AdmittedNode{}, s.pend(ctx, n, s.nodes.Sources.Network(r), nil)
	}
	if err != nil {
		return AdmittedNode{}, err
	}
	return s.newSecret(ctx, r, n, c, c.Digest)
}

// Imported is a node that was paired with an OpenClaw gateway. It connects with the token it has, and gets a credential
// of Farhand in its place.
type Imported struct {
	PublicKey   ed25519.PublicKey
	TokenDigest string   // the SHA-256 of its token, in hexadecimal digits
	User        string   // its owner; empty: as in Decision
	Name        string   // for people
	Tools       []string // names or globs of tools it may offer
}

// ImportState is what became of an imported node.
type ImportState string

// The states.
const (
	ImportDone   ImportState = "imported"
	ImportExists ImportState = "exists" // it is paired, and was not changed
)

// Import pairs a node without its help. The approver must be an admin: it vouches for the key and the token.
func (s *Service) Import(ctx context.Context, by Approver, n Imported) (ImportState, error) {
	if len(n.PublicKey) != ed25519.PublicKeySize {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"public_key: must be an Ed25519 key, 32 bytes in base64url.")
	}
	deviceID := NodeID(n.PublicKey)
	d, err := approval(by, registry.Pairing{DeviceID: deviceID}, Decision{
		Approve: true, User: n.User, Name: n.Name, Tools: n.Tools,
	})
	if err != nil {
		return "", err
	}
	c := registry.Credential{
		Tenant: by.Tenant, ID: auth.NewCredentialID(), Kind: registry.CredentialDevice, Digest: n.TokenDigest,
		Name: d.Name, Roles: []string{auth.NameDevice}, User: d.User, DeviceID: deviceID, PublicKey: n.PublicKey,
		CreatedBy: d.By,
	}
	for _, glob := range d.Tools {
		c.Approved = append(c.Approved, registry.ApprovedTool{Name: glob})
	}
	paired, err := s.Paired(ctx, by.Tenant, deviceID)
	if err != nil || paired {
		return ImportExists, err
	}
	_, err = s.cfg.Store.CreateCredential(ctx, c)
	if errors.Is(err, registry.ErrDevicePaired) {
		return ImportExists, nil
	}
	if err != nil {
		return "", err
	}
	// Connections that use this device id without its credential must close.
	_, err = s.cfg.Store.AppendChange(ctx, registry.CredentialChange{
		Tenant: c.Tenant, Kind: registry.ChangeDevice, ID: c.DeviceID,
	})
	s.cfg.Log.Info("a node was imported", "device", c.DeviceID, "credential", c.ID, "tenant", c.Tenant,
		"by", c.CreatedBy)
	return ImportDone, err
}
