package registry

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// Limits of pairing requests. They apply to the whole fleet.
const (
	MaxPairings          = 1000        // pending, or decided and not collected
	MaxPairingsOfSource  = 16          // from one source address
	PairingsShare        = 8           // one network gets at most an eighth of the remaining places
	MaxPairingTools      = 128         // tool names that a device may request
	MaxNonces            = 8           // per owner; the oldest is dropped for a new one
	NonceTTL             = time.Minute // of nonces that devices sign
	MaxDeviceDefinitions = 512 << 10   // bytes of stored definitions per paired device
	MaxWaitingBytes      = 64 << 20    // bytes of a tenant's definitions that wait for approval
	MaxSetups            = 256         // setup codes of a tenant that have not expired
	MaxSetupsOfApprover  = 32          // of one approver
)

// Pairing is a device's pairing request. It contains no secret.
type Pairing struct {
	ID         string `json:"id"`     // not secret
	Digest     string `json:"digest"` // the SHA-256 of the device's secret, in hexadecimal digits
	CodeDigest string `json:"code"`   // of the code that a person types; empty: decided by id only

	// Code is the code itself. Only requests of nodes have it, because a node asks again and again and shows one code.
	// A node has no secret: its key proves who it is, so Digest is empty.
	Code string `json:"shown_code,omitempty"`

	Source string `json:"source"` // the source address of the request

	// Network is the network of that address. It limits the network's share of all places. Empty: no such limit.
	Network string `json:"network,omitempty"`

	// Tenant is the tenant whose approvers see the request. Empty: not assigned until an approver enters the code.
	Tenant string `json:"tenant,omitempty"`

	DeviceID   string   `json:"device_id"`
	DeviceName string   `json:"device_name,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	Client     string   `json:"client,omitempty"` // program and version
	PublicKey  []byte   `json:"public_key,omitempty"`
	Tools      []string `json:"tools,omitempty"` // requested tool names

	CreatedAt time.Time `json:"created_at"` // by the store's clock
	ExpiresAt time.Time `json:"expires_at"`

	Decision *PairingDecision `json:"-"` // nil: pending

	// Collected is the id of the credential that a node collected.
	Collected string `json:"collected,omitempty"`
}

// nodeIDLength is how many digits of a node's device id are in the id of its request: 96 bits of the digest.
const nodeIDLength = 24

// NodePairingID returns the id of a node's request. The part before the dot follows from the device id, so that a node
// has one request at a time. The version, which is the code, tells it from the earlier requests that it superseded.
func NodePairingID(deviceID, version string) string {
	return "n" + deviceID[:min(nodeIDLength, len(deviceID))] + "." + version
}

// SameAsk reports whether two requests of a node ask for the same, so that a decision about one fits the other.
func (p Pairing) SameAsk(other Pairing) bool {
	return p.DeviceID == other.DeviceID && p.DeviceName == other.DeviceName && p.Platform == other.Platform &&
		p.Client == other.Client && p.Tenant == other.Tenant && bytes.Equal(p.PublicKey, other.PublicKey) &&
		slices.Equal(p.Tools, other.Tools)
}

// Setup is a setup code: a node that has it is paired, without a question to an approver.
type Setup struct {
	Digest string   `json:"digest"` // the SHA-256 of the code's secret, in hexadecimal digits
	Tenant string   `json:"tenant"`
	User   string   `json:"user,omitempty"`  // the node's user; empty: no particular user
	Name   string   `json:"name,omitempty"`  // for people; empty: the node's own name
	Tools  []string `json:"tools"`           // names or globs of allowed tools; nil: those that the node declares
	Scope  string   `json:"scope,omitempty"` // globs of tools that the approver may approve; empty: all
	By     string   `json:"by"`              // the approver's credential
	ByUser string   `json:"by_user,omitempty"`

	// Viewer is the only user whose devices the approver may replace. Empty: all.
	Viewer string `json:"viewer,omitempty"`

	UsedBy string `json:"used_by,omitempty"` // the device id of the only node that may use it; empty: not used

	// Credential is the id of the credential that the node last got with it. Once that is revoked, the code is void.
	// Empty: it got none yet.
	Credential string `json:"credential,omitempty"`

	CreatedAt time.Time `json:"created_at"` // by the store's clock
	ExpiresAt time.Time `json:"expires_at"`
}

// PairingDecision is an approver's decision about a request.
type PairingDecision struct {
	Approved bool     `json:"approved"`
	Tenant   string   `json:"tenant"`
	User     string   `json:"user,omitempty"`  // the device's user; empty: no particular user
	Name     string   `json:"name,omitempty"`  // for people
	Tools    []string `json:"tools,omitempty"` // names or globs of allowed tools
	By       string   `json:"by"`              // the approver's credential
	ByUser   string   `json:"by_user,omitempty"`
}

// Guess limits wrong codes: at most Limit within Window for all requests with the same Name.
type Guess struct {
	Name   string
	Limit  int
	Window time.Duration

	// Share also limits them by the next guess in the list: at most one Share-th of its remaining attempts. So a few
	// callers cannot use up the attempts of all that share the next guess. Zero: no such limit.
	Share int
}

// FullGuesses returns the exhausted guesses of a list. No code may be tried until each of their windows has passed.
// counts has the wrong codes counted for each guess.
func FullGuesses(guesses []Guess, counts []int) (full []Guess) {
	left := 0
	for i := len(guesses) - 1; i >= 0; i-- {
		most := guesses[i].Limit
		if share := guesses[i].Share; share > 0 && i+1 < len(guesses) {
			most = min(most, (left+share-1)/share)
		}
		if left = max(most-counts[i], 0); left == 0 {
			full = append(full, guesses[i])
		}
	}
	return full
}

// PairingStore keeps pairing requests for minutes, the nonces that paired devices sign, and the definitions of their
// tools.
type PairingStore interface {
	// CreatePairing stores a request for ttl and returns it with its times. It fails with ErrPairingsFull at the limit
	// of all requests, of its source, or of its network (PairingsShare). It fails with ErrCodeTaken if another request
	// has the code; the caller then needs another code.
	CreatePairing(ctx context.Context, p Pairing, ttl time.Duration) (Pairing, error)

	// Pairing returns a request by its id, or ErrNoPairing.
	Pairing(ctx context.Context, id string) (Pairing, error)

	// Pairings returns at most MaxPairings pending requests of a tenant, the oldest first.
	Pairings(ctx context.Context, tenant string) ([]Pairing, error)

	// PairingByCode returns the request with the digest of a code. An unknown code is counted as wrong for each guess
	// and fails with ErrNoPairing. If a guess is exhausted, lookups fail with CodeRateLimited until its window has
	// passed. A used code fails with ErrPairingDecided for the ttl of its decision and does not count as wrong. Lookup
	// and count are one atomic step across all pods.
	PairingByCode(ctx context.Context, codeDigest string, guesses ...Guess) (Pairing, error)

	// DecidePairing decides a pending request. The first decision counts; later ones fail with ErrPairingDecided. The
	// code becomes invalid. The request is kept for another ttl so that the device can read the decision.
	DecidePairing(ctx context.Context, id string, d PairingDecision, ttl time.Duration) (Pairing, error)

	// TakePairing removes an approved request and returns it. If several callers race, one gets it. It fails with
	// ErrNoPairing if the request does not exist or was not approved.
	TakePairing(ctx context.Context, id string) (Pairing, error)

	// AskPairing stores the request of a node, whose id is of NodePairingID, or renews the one that it has. It returns
	// what is stored. A pending request for the same stays, with its id and code, and lives for another ttl, but no
	// longer than most since it was made. A different or older one is superseded: its id and code become invalid. A
	// decided one that was not collected stays as it is. The limits and errors are those of CreatePairing.
	AskPairing(ctx context.Context, p Pairing, ttl, most time.Duration) (Pairing, error)

	// NodePairing returns the request of a node by its device id, or ErrNoPairing.
	NodePairing(ctx context.Context, deviceID string) (Pairing, error)

	// CollectPairing is TakePairing for a node: it removes the request from the limits, and keeps it for ttl with the
	// id of the credential.
	CollectPairing(ctx context.Context, id, credential string, ttl time.Duration) (Pairing, error)

	// CreateSetup stores a setup code for ttl, and returns it with its times. It fails with ErrManySetups at the limit
	// of its tenant or approver.
	CreateSetup(ctx context.Context, s Setup, ttl time.Duration) (Setup, error)

	// UseSetup binds a setup code to a device id and returns it. The first device counts; it may use the code again.
	// For another, and for an unknown or expired code, it fails with ErrNoSetup.
	UseSetup(ctx context.Context, digest, deviceID string) (Setup, error)

	// VoidSetups forgets the setup codes of a tenant that a device has used.
	VoidSetups(ctx context.Context, tenant, deviceID string) error

	// PairSetup notes the credential that the node of a setup code has, empty if none. For an unknown or expired code
	// it fails with ErrNoSetup.
	PairSetup(ctx context.Context, digest, credential string) error

	// PutNonce keeps a nonce for an owner, for life. An owner is a credential and its caller, or a question to an MCP
	// client. All nonces of one owner have about the same life.
	PutNonce(ctx context.Context, tenant, owner, nonce string, life time.Duration) error

	// TakeNonce removes a nonce of an owner, and reports whether it existed.
	TakeNonce(ctx context.Context, tenant, owner, nonce string) (bool, error)

	// SetDeviceTools replaces the stored tools of a paired device, for CredentialIdle. More than MaxDeviceDefinitions
	// fails with CodeInvalidRequest. It fails with ErrManyWaiting if the tenant's waiting tools would exceed
	// MaxWaitingBytes.
	SetDeviceTools(ctx context.Context, tenant, credential string, t DeviceTools) error

	// DeviceTools returns the stored tools of a paired device.
	DeviceTools(ctx context.Context, tenant, credential string) (DeviceTools, error)
}

// DeviceTools are tool definitions of a paired device.
type DeviceTools struct {
	Waiting []ToolSpec `json:"waiting,omitempty"` // registered; offered only after approval
	Pinned  []ToolSpec `json:"pinned,omitempty"`  // as approved
}

// Size returns the approximate size of the definitions in bytes.
func (t DeviceTools) Size() int { return sizeOf(t.Waiting) + sizeOf(t.Pinned) }

// WaitingSize is Size of the waiting definitions.
func (t DeviceTools) WaitingSize() int { return sizeOf(t.Waiting) }

func sizeOf(list []ToolSpec) (size int) {
	for _, spec := range list {
		size += spec.Size()
	}
	return size
}

// Errors of a PairingStore.
var (
	ErrNoPairing = Errorf(CodeNotFound,
		"The pairing request does not exist, has expired or was collected.")
	ErrCodeTaken      = Errorf(CodeBusy, "Another device already has this code.")
	ErrPairingDecided = Errorf(CodeInvalidRequest, "The pairing request is already decided.")
	ErrPairingsFull   = Errorf(CodeRateLimited, "Too many devices wait to be paired. Retry in a minute.").
				RetryIn(time.Minute)
	ErrNoSetup    = Errorf(CodeNotFound, "The setup code is unknown, was used or has expired. Make another one.")
	ErrManySetups = Errorf(CodeRateLimited, "Too many setup codes were made and have not expired. Use one of them, or "+
		"retry in some minutes.").RetryIn(time.Minute)
	ErrManyWaiting         = Errorf(CodeInvalidRequest, "Too many tools of this tenant wait for approval.")
	ErrDefinitionsTooLarge = Errorf(CodeInvalidRequest, "The device has too many tool definitions to store.")
)

// ErrGuesses is the error for a caller that must wait before it may try another code.
func ErrGuesses(wait time.Duration) error {
	return Errorf(CodeRateLimited, "Too many wrong codes. Wait, then read the code from the device "+
		"again.").RetryIn(wait)
}
