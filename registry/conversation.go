package registry

import (
	"context"
	"encoding/json"
	"time"
)

// Defaults of what is kept of a conversation.
const (
	DefaultHistoryTTL = 24 * time.Hour // after the last change
	DefaultHistoryCap = 1000           // messages; the oldest are forgotten
)

// MaxHistoryBytes is how many bytes the messages of a conversation may have in total, because a conversation is read as
// a whole. Beyond it the oldest are forgotten, but never the newest.
const MaxHistoryBytes = 4 << 20

// MaxTrail is how many entries a trail keeps at most, whatever limit it is asked for.
const MaxTrail = 1000

// Turn is the right to write to a conversation. It has one holder at a time in the whole fleet. Fence grows with every
// turn of the conversation; a write of a holder that has lost the turn is refused.
type Turn struct {
	Key   Key
	Fence int64
}

// Owner is the owner of a conversation. Its first turn sets it, and it never changes.
type Owner struct {
	UserID   string // as credentials named them; empty: nobody in particular
	DeviceID string // of the device that was connected then
	Bound    bool   // DeviceID was the credential's: the conversation is that device's alone
}

// Admits reports whether a claim may have the session of the conversation, which is kept for longer than the session is
// remembered. A claim without a user may have what is no device's alone.
func (o Owner) Admits(claim *Session) bool {
	return !o.Foreign(claim.UserID) && (!o.Bound || claim.AnyOwner || claim.Bound && claim.DeviceID == o.DeviceID)
}

// Foreign reports whether this owner is a user other than user. It is false if either of them is unknown.
func (o Owner) Foreign(user string) bool { return user != "" && o.UserID != "" && user != o.UserID }

// Conversation is a stored conversation. The store does not interpret the messages: they belong to the agent.
type Conversation struct {
	Messages []json.RawMessage // oldest first
	Draft    json.RawMessage   // the last noted state of the message being written; nil if there is none
	Title    string
	Owner    Owner
	Busy     bool // a turn is running
}

// ConversationInfo is what lists show of a conversation. For one that does not exist, all fields but Key are zero.
type ConversationInfo struct {
	Key      Key
	Owner    Owner
	Title    string
	Named    bool // Title was given by a person
	Messages int
	Created  time.Time // when the first message was stored
	Active   time.Time // when messages changed last
	Turn     time.Time // when the running turn began; zero: none is running
}

// ConversationQuery selects conversations of a tenant that have messages, the last used first.
type ConversationQuery struct {
	Tenant  string
	Offline bool               // only those whose session is not connected
	After   ConversationCursor // start behind this place
	Limit   int                // at most this many; zero means 100
}

// ConversationCursor is a place in the order of conversations. The zero value is the beginning.
type ConversationCursor struct {
	Active  int64 // ms
	Session string
}

// ConversationIndex finds conversations without reading them. An expiring conversation may disappear from the lists a
// little before it is forgotten.
type ConversationIndex interface {
	// DescribeConversations describes the conversations of these keys, in their order.
	DescribeConversations(ctx context.Context, keys ...Key) ([]ConversationInfo, error)

	// ListConversations returns a page, and the cursor of the next one, nil on the last. A page may hold fewer than the
	// limit, even none, and still have a next one.
	ListConversations(ctx context.Context, q ConversationQuery) ([]ConversationInfo, *ConversationCursor, error)

	// RunningConversations returns a page of the conversations of a tenant with a running turn behind a place, the
	// longest running first, and the cursor of the next page, nil on the last. Active of such a cursor is the store's
	// own. A page may hold fewer than the limit, even none, and still have a next one.
	RunningConversations(
		ctx context.Context, tenant string, after ConversationCursor, limit int,
	) ([]ConversationInfo, *ConversationCursor, error)

	// ConversationsVersion returns a value that changes whenever the methods above may return something new, other than
	// turns. It is empty while the tenant has no conversation.
	ConversationsVersion(ctx context.Context, tenant string) (string, error)

	// NameConversation gives a conversation the title a person chose. It needs no turn, and no messages yet.
	NameConversation(ctx context.Context, key Key, title string) error

	// EraseConversation deletes a conversation, and reports whether there was anything to delete. A running turn is
	// lost: its later writes are refused.
	EraseConversation(ctx context.Context, key Key) (bool, error)
}

// ConversationStore keeps conversations, so that any pod can go on with any of them. All methods are safe for
// concurrent use and honour their context. A failure of the store is an *Error with CodeStoreUnavailable.
//
// Every write belongs to a turn and is fenced: it answers ErrTurnLost, and changes nothing, once the turn has ended,
// its lease has lapsed and another began, or the store forgot it.
type ConversationStore interface {
	ConversationIndex

	// BeginTurn takes the turn for the time of lease. It fails with CodeBusy while another holder's lease runs; the
	// error's RetryAfter is the rest of that lease.
	BeginTurn(ctx context.Context, key Key, lease time.Duration) (Turn, error)

	// RenewTurn extends the lease to that time from now.
	RenewTurn(ctx context.Context, t Turn, lease time.Duration) error

	// EndTurn gives the turn back. A draft stays: there is one only if its message could not be appended.
	EndTurn(ctx context.Context, t Turn) error

	// AppendMessages adds to the end and forgets the draft, both or neither. It returns how many messages there are
	// now, after the oldest beyond the cap and MaxHistoryBytes have been forgotten. A caller that does not know whether
	// the append succeeded can repeat it: the last append of a turn is not added a second time, unless TruncateMessages
	// came in between.
	AppendMessages(ctx context.Context, t Turn, messages ...json.RawMessage) (int, error)

	// SaveDraft notes the message that is being written, in place of the former draft. A draft outlives a lapsed turn,
	// so that the next turn finds it. An empty draft is none.
	SaveDraft(ctx context.Context, t Turn, draft json.RawMessage) error

	// TruncateMessages keeps the oldest n messages and forgets the draft.
	TruncateMessages(ctx context.Context, t Turn, n int) error

	// SetTitle names the conversation, unless a person has.
	SetTitle(ctx context.Context, t Turn, title string) error

	// SetOwner sets the owner of the conversation, unless it has one.
	SetOwner(ctx context.Context, t Turn, o Owner) error

	// Conversation returns the whole conversation, the zero value for an unknown one.
	Conversation(ctx context.Context, key Key) (Conversation, error)

	// CountMessages returns how many messages there are.
	CountMessages(ctx context.Context, key Key) (int, error)

	// AppendTrail adds an entry to the short call history that the loop guard of a conversation keeps, and returns the
	// last entries, oldest first, at most limit of them and the new one included. It needs no turn, because calls run
	// side by side.
	AppendTrail(ctx context.Context, key Key, entry string, limit int) ([]string, error)

	// Trail returns the last entries, oldest first, at most limit of them.
	Trail(ctx context.Context, key Key, limit int) ([]string, error)
}

// ErrTurnLost is returned for writes of a turn that is not the current one.
var ErrTurnLost = Errorf(CodeCancelled, "The turn was taken over by another pod.")

// ErrTurnTaken returns the error of a turn that cannot begin yet, because the holder's lease runs for the time given.
func ErrTurnTaken(remaining time.Duration) *Error {
	return &Error{
		Code: CodeBusy, RetryAfter: remaining,
		Message: "Another turn of this conversation is under way. Ask again when it has ended.",
	}
}

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
