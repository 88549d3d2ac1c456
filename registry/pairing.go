package registry

import (
	"context"
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
)

// Pairing is a device's pairing request. It contains neither its secret nor its code.
type Pairing struct {
	ID         string `json:"id"`     // not secret
	Digest     string `json:"digest"` // the SHA-256 of the device's secret, in hexadecimal digits
	CodeDigest string `json:"code"`   // of the code that a person types; empty: decided by id only
	Source     string `json:"source"` // the source address of the request

	// Network is the network of that address. It limits the network's share of all places. Empty: no such limit.
	Network string `json:"network,omitempty"`

	// Tenant is the tenant whose approvers see the request. Empty: not assigned until an approver enters the code.
	Tenant string `json:"tenant,omitempty"`

	DeviceID   string   `json:"device_id"`
	DeviceName string   `json:"device_name,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	PublicKey  []byte   `json:"public_key,omitempty"`
	Tools      []string `json:"tools,omitempty"` // requested tool names

	CreatedAt time.Time `json:"created_at"` // by the store's clock
	ExpiresAt time.Time `json:"expires_at"`

	Decision *PairingDecision `json:"-"` // nil: pending
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
	ErrManyWaiting         = Errorf(CodeInvalidRequest, "Too many tools of this tenant wait for approval.")
	ErrDefinitionsTooLarge = Errorf(CodeInvalidRequest, "The device has too many tool definitions to store.")
)

// ErrGuesses is the error for a caller that must wait before it may try another code.
func ErrGuesses(wait time.Duration) error {
	return Errorf(CodeRateLimited, "Too many wrong codes. Wait, then read the code from the device "+
		"again.").RetryIn(wait)
}
