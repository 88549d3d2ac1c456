package registry

import (
	"context"
	"time"
)

const (
	// MaxContinuation is how long one continuation may be.
	MaxContinuation = 1 << 20

	// MaxHeldContinuations is how many bytes of continuations are kept of one holder; beyond it the oldest are
	// forgotten.
	MaxHeldContinuations = 32 << 20

	// ContinuationOverhead is what each counts beside its data.
	ContinuationOverhead = 256
)

// Holder is whose continuations they are: nobody else reads them, or has them forgotten.
type Holder struct {
	Tenant string
	User   string // empty: whoever shares the credentials
}

// ContinuationStore keeps for a while what a completion did before it handed a call to its caller, so that any pod can
// go on when the caller comes back. The store looks into nothing of it. All methods are safe for concurrent use and
// honour their context. A failure of the store is an *Error with CodeStoreUnavailable.
type ContinuationStore interface {
	// KeepContinuation keeps data under an id for the time of ttl, in place of what was kept under it. Data longer than
	// MaxContinuation is refused with CodePayloadTooLarge.
	KeepContinuation(ctx context.Context, o Holder, id string, data []byte, ttl time.Duration) error

	// Continuations returns those of ids that are kept. It stops before the first that would make them longer than
	// limit together, so what matters most goes first.
	Continuations(ctx context.Context, o Holder, limit int, ids ...string) (map[string][]byte, error)
}

// ErrContinuationTooLarge is returned for data longer than MaxContinuation.
var ErrContinuationTooLarge = Errorf(CodePayloadTooLarge, "A continuation may have %d bytes.", MaxContinuation)
