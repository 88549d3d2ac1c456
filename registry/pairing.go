package registry

import (
	"context"
	"time"
)

// Bounds of requests to pair. They hold for the whole fleet.
const (
	MaxPairings          = 1000        // that wait, or were decided and not collected
	MaxPairingsOfSource  = 16          // of one source address
	PairingsShare        = 8           // one network has at most an eighth of the places that are left
	MaxPairingTools      = 128         // names a device may ask for
	MaxNonces            = 8           // of one owner; an older one is forgotten for a newer one
	NonceTTL             = time.Minute // of those that devices sign
	MaxDeviceDefinitions = 512 << 10   // bytes of the definitions that are kept for one paired device
)

// Pairing is a request of a device to be paired. Neither its secret nor its code is in it.
type Pairing struct {
	ID         string `json:"id"`     // not secret
	Digest     string `json:"digest"` // the SHA-256 of the secret that the device asks with, in hexadecimal digits
	CodeDigest string `json:"code"`   // of the code that a person types; empty: it is decided by its id only
	Source     string `json:"source"` // the address it came from

	// Network is the network of that address, whose requests have a share of all places. Empty: they have no share.
	Network string `json:"network,omitempty"`

	// Tenant is whose approvers see the request. Empty: nobody's, until an approver knows the code.
	Tenant string `json:"tenant,omitempty"`

	DeviceID   string   `json:"device_id"`
	DeviceName string   `json:"device_name,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	PublicKey  []byte   `json:"public_key,omitempty"`
	Tools      []string `json:"tools,omitempty"` // names the device asks for

	CreatedAt time.Time `json:"created_at"` // by the store's clock
	ExpiresAt time.Time `json:"expires_at"`

	Decision *PairingDecision `json:"-"` // nil: it waits
}

// PairingDecision is what an approver decided of a request.
type PairingDecision struct {
	Approved bool     `json:"approved"`
	Tenant   string   `json:"tenant"`
	User     string   `json:"user,omitempty"`  // whose device it becomes; empty: nobody's in particular
	Name     string   `json:"name,omitempty"`  // for people
	Tools    []string `json:"tools,omitempty"` // names or globs of the tools it may offer
	By       string   `json:"by"`              // the approver's credential
	ByUser   string   `json:"by_user,omitempty"`
}

// Guess bounds wrong codes: at most Limit within Window of everybody who shares Name.
type Guess struct {
	Name   string
	Limit  int
	Window time.Duration

	// Share bounds them besides by the next guess in a list: at most one Share-th of what is left of that. So no few of
	// those who share the next one use it up. Zero: no such bound.
	Share int
}

// FullGuesses returns the guesses of a list of which nothing is left. No code may be tried until the window of each of
// them has passed. counts are the wrong codes counted for each.
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

// PairingStore keeps requests to pair for minutes, the nonces that paired devices sign, and the definitions of their
// tools. All methods are safe for concurrent use and honour their context. A failure of the store is an *Error with
// CodeStoreUnavailable.
type PairingStore interface {
	// CreatePairing stores a request for a time, and returns it with its times. ErrPairingsFull: there are too many, of
	// all, of its source, or of its network (PairingsShare).
	// ErrCodeTaken: another request has the code, so another code is needed.
	CreatePairing(ctx context.Context, p Pairing, ttl time.Duration) (Pairing, error)

	// Pairing returns a request by its id; ErrNoPairing if there is none.
	Pairing(ctx context.Context, id string) (Pairing, error)

	// Pairings returns the requests of a tenant that wait, at most MaxPairings, the oldest first.
	Pairings(ctx context.Context, tenant string) ([]Pairing, error)

	// PairingByCode returns the request with the digest of a code. A code that nobody has is counted as wrong for each
	// guess, and is ErrNoPairing. Once one of them is full, no code is looked up any more until its window has passed,
	// and the error is CodeRateLimited. A code that was used is ErrPairingDecided for the ttl of its decision, and is
	// not wrong. Asking and counting are one step, whoever asks on whatever pod.
	PairingByCode(ctx context.Context, codeDigest string, guesses ...Guess) (Pairing, error)

	// DecidePairing decides a request that waits: the first decision counts. Its code is of no use afterwards, and it
	// is kept for another ttl so that the device can learn of it. ErrPairingDecided: it was decided before.
	DecidePairing(ctx context.Context, id string, d PairingDecision, ttl time.Duration) (Pairing, error)

	// TakePairing removes an approved request and returns it, to one of all that ask. ErrNoPairing: it is not there, or
	// was not approved.
	TakePairing(ctx context.Context, id string) (Pairing, error)

	// PutNonce keeps a nonce for an owner, for life: a credential, and who asks with it; or what a client of MCP was
	// asked about. All nonces of one owner have about the same life.
	PutNonce(ctx context.Context, tenant, owner, nonce string, life time.Duration) error

	// TakeNonce removes a nonce of an owner, and reports whether it was there.
	TakeNonce(ctx context.Context, tenant, owner, nonce string) (bool, error)

	// SetDeviceTools replaces what is kept of the tools of a paired device, for CredentialIdle. More than
	// MaxDeviceDefinitions is CodeInvalidRequest.
	SetDeviceTools(ctx context.Context, tenant, credential string, t DeviceTools) error

	// DeviceTools returns what is kept of the tools of a paired device.
	DeviceTools(ctx context.Context, tenant, credential string) (DeviceTools, error)
}

// DeviceTools are definitions of tools of a paired device.
type DeviceTools struct {
	Waiting []ToolSpec `json:"waiting,omitempty"` // registered, and not offered before somebody approves
	Pinned  []ToolSpec `json:"pinned,omitempty"`  // as they were when they were approved
}

// Size returns about how many bytes the definitions take.
func (t DeviceTools) Size() int {
	size := 0
	for _, list := range [...][]ToolSpec{t.Waiting, t.Pinned} {
		for _, spec := range list {
			size += spec.Size()
		}
	}
	return size
}

// ErrNoPairing is the error for a request that is not there, or no longer.
var ErrNoPairing = Errorf(CodeNotFound,
	"There is no such request to pair: it has expired, was collected, or never was.")

// ErrCodeTaken is the error for a code that another request has.
var ErrCodeTaken = Errorf(CodeBusy, "Another device has this code.")

// ErrPairingDecided is the error for a request that was decided before.
var ErrPairingDecided = Errorf(CodeInvalidRequest, "The request to pair was decided already, by you or by another.")

// ErrPairingsFull is the error while too many devices wait to be paired.
var ErrPairingsFull = &Error{
	Code: CodeRateLimited, RetryAfter: time.Minute,
	Message: "Too many devices wait to be paired. Try again in a minute.",
}

// ErrGuesses is the error for whoever may not try another code for a while.
func ErrGuesses(wait time.Duration) error {
	return &Error{
		Code: CodeRateLimited, RetryAfter: wait,
		Message: "Too many wrong codes. Wait, and read the code at the device again.",
	}
}

// ErrDefinitionsTooLarge is the error for more definitions of a device than are kept.
var ErrDefinitionsTooLarge = Errorf(CodeInvalidRequest, "The device has more definitions of tools than are kept.")
