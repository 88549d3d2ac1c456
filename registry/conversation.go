package registry

import (
	"context"
	"encoding/json"
	"time"
)

// What is kept of a conversation when nothing else is configured.
const (
	DefaultHistoryTTL = 24 * time.Hour // after the last change
	DefaultHistoryCap = 1000           // messages; the oldest are forgotten
)

// MaxHistoryBytes is how long the messages of a conversation may be together: it is read as a whole, and must be readable.
// Beyond it the oldest are forgotten, but never the newest.
const MaxHistoryBytes = 4 << 20

// MaxTrail is how many entries a trail keeps at most, whatever limit it is asked for.
const MaxTrail = 1000

// Turn is the right to write to a conversation: one holder at a time in the whole fleet. Fence grows with every turn
// of the conversation; what a holder writes after it lost the turn is refused.
type Turn struct {
	Key   Key
	Fence int64
}

// Conversation is what is kept of one. The store looks into nothing of it: messages belong to the agent.
type Conversation struct {
	Messages []json.RawMessage // oldest first
	Draft    json.RawMessage   // what was being said when it was last noted; nil when nothing is
	Title    string
	Busy     bool // a turn is under way
}

// ConversationStore keeps conversations, so that any pod can go on with any of them. All methods are safe for
// concurrent use and honour their context. A failure of the store is an *Error with CodeStoreUnavailable.
//
// Every write belongs to a turn and is fenced: it answers ErrTurnLost, and changes nothing, once the turn has ended, its lease
// has lapsed and another began, or the store forgot it.
type ConversationStore interface {
	// BeginTurn takes the turn for the time of lease. It fails with CodeBusy while another holder's lease runs; the error's
	// RetryAfter is what is left of that.
	BeginTurn(ctx context.Context, key Key, lease time.Duration) (Turn, error)

	// RenewTurn extends the lease to that time from now.
	RenewTurn(ctx context.Context, t Turn, lease time.Duration) error

	// EndTurn gives the turn back. A draft stays: it is there only if what it is a draft of could not be appended.
	EndTurn(ctx context.Context, t Turn) error

	// AppendMessages adds to the end and forgets the draft, both or neither. It returns how many messages there are now,
	// after the oldest beyond the cap and MaxHistoryBytes have been forgotten. Who did not hear whether it was done can ask
	// again: what a turn appended last is not added a second time, unless TruncateMessages came in between.
	AppendMessages(ctx context.Context, t Turn, messages ...json.RawMessage) (int, error)

	// SaveDraft notes what is being said, in place of what was noted before. It outlives a lapsed turn, so that the
	// next one finds what the former had said. An empty draft is none.
	SaveDraft(ctx context.Context, t Turn, draft json.RawMessage) error

	// TruncateMessages keeps the oldest n messages and forgets the draft.
	TruncateMessages(ctx context.Context, t Turn, n int) error

	// SetTitle names the conversation.
	SetTitle(ctx context.Context, t Turn, title string) error

	// Conversation returns all there is; of an unknown conversation the zero value.
	Conversation(ctx context.Context, key Key) (Conversation, error)

	// CountMessages returns how many messages there are.
	CountMessages(ctx context.Context, key Key) (int, error)

	// AppendTrail adds an entry to the short memory that guards of a conversation keep between calls, and returns the last
	// entries, oldest first, at most limit of them, the new one among them. It needs no turn: calls run side by side.
	AppendTrail(ctx context.Context, key Key, entry string, limit int) ([]string, error)

	// Trail returns the last entries, oldest first, at most limit of them.
	Trail(ctx context.Context, key Key, limit int) ([]string, error)
}

// ErrTurnLost is returned for writes of a turn that is not the current one.
var ErrTurnLost = Errorf(CodeCancelled, "The turn was taken over by another pod.")

// ErrTurnTaken returns the failure of a turn that cannot begin yet: the holder's lease runs for the time left.
func ErrTurnTaken(left time.Duration) *Error {
	return &Error{
		Code: CodeBusy, RetryAfter: left,
		Message: "Another turn of this conversation is under way. Ask again when it has ended.",
	}
}
