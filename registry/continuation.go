package registry

import (
	"context"
	"time"
)

const (
	// MaxContinuation is how many bytes one continuation may have.
	MaxContinuation = 1 << 20

	// MaxHeldContinuations is how many bytes of continuations are kept of one holder; beyond it the oldest are
	// forgotten.
	MaxHeldContinuations = 32 << 20

	// ContinuationOverhead is how many bytes each counts for beside its data.
	ContinuationOverhead = 256
)

// ContinuationOwner is the owner of continuations. Nobody else can read them, or use up their space.
type ContinuationOwner struct {
	Tenant string
	User   string // as auth.Identity.Scope has it; empty: everybody who shares the credentials
}

// ContinuationStore keeps for a while the state of a completion that handed a tool call to its caller, so that any pod
// can go on when the caller comes back. The store does not interpret the data. All methods are safe for concurrent use
// and honour their context. A failure of the store is an *Error with CodeStoreUnavailable.
type ContinuationStore interface {
	// KeepContinuation keeps data under an id for ttl, in place of the former data. Data longer than MaxContinuation is
	// refused with CodePayloadTooLarge.
	KeepContinuation(ctx context.Context, o ContinuationOwner, id string, data []byte, ttl time.Duration) error

	// Continuations returns those of ids that are kept. It stops before the first that would make their total longer
	// than limit bytes, so callers put the most important ids first.
	Continuations(ctx context.Context, o ContinuationOwner, limit int, ids ...string) (map[string][]byte, error)
}

// ErrContinuationTooLarge is returned for data longer than MaxContinuation.
var ErrContinuationTooLarge = Errorf(CodePayloadTooLarge, "A continuation may have %d bytes.", MaxContinuation)
