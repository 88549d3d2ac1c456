package registry

import (
	"context"
	"encoding/json"
	"time"
)

// MaxHistoryBytes is the limit of a conversation's messages in bytes, because a conversation is read as a whole. Beyond
// it the oldest messages are dropped, but never the newest.
const MaxHistoryBytes = 4 << 20

// MaxTrail is the most entries of a trail, whatever the requested limit.
const MaxTrail = 1000

// Turn is the exclusive right to write to a conversation. It has one holder at a time in the whole fleet. Fence grows
// with every turn of the conversation. A write by a holder that has lost the turn is rejected.
type Turn struct {
	Key   Key
	Fence int64
}

// Owner is the owner of a conversation. Its first turn sets it, and it never changes.
type Owner struct {
	UserID   string // from the credential; empty: no particular user
	DeviceID string // the device connected at that time
	Bound    bool   // the credential names DeviceID: only that device has the conversation
}

// Admits reports whether a claim may use the conversation's session. A conversation is kept longer than its session. A
// claim without a user may use any conversation that is not bound to one device.
func (o Owner) Admits(claim *Session) bool {
	return !o.Foreign(claim.UserID) && (!o.Bound || claim.AnyOwner || claim.Bound && claim.DeviceID == o.DeviceID)
}

// Foreign reports whether this owner is a user other than user. It is false if either of them is unknown.
func (o Owner) Foreign(user string) bool { return user != "" && o.UserID != "" && user != o.UserID }

// Conversation is a stored conversation. The store does not interpret the messages: they belong to the agent.
type Conversation struct {
	Messages []json.RawMessage // oldest first
	Draft    json.RawMessage   // the last saved state of the message being written; nil if there is none
	Title    string
	Owner    Owner
	Busy     bool // a turn is running
}

// ConversationInfo is the list entry of a conversation. For an unknown conversation, all fields but Key are zero.
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

// ConversationQuery selects conversations of a tenant that have messages, the most recently used first.
type ConversationQuery struct {
	Tenant  string
	Offline bool               // only those whose session is not connected
	After   ConversationCursor // start after this position
	Limit   int                // at most this many; zero means 100
}

// ConversationCursor is a position in an order of conversations. The zero value is the beginning. Its Generation is
// when the conversation was active last, in ms; of a running turn, when it began, in the store's own format.
type ConversationCursor = Cursor

// ConversationIndex finds conversations without reading them. An expiring conversation may leave the lists shortly
// before it is deleted.
type ConversationIndex interface {
	// DescribeConversations describes the conversations of these keys, in order. It fails if one was asked for, and a
	// newer release wrote it; of several, such a one has only its key.
	DescribeConversations(ctx context.Context, keys ...Key) ([]ConversationInfo, error)

	// ListConversations returns a page and the cursor of the next one, nil on the last. A page may have fewer entries
	// than the limit, even none, and still have a next one.
	ListConversations(ctx context.Context, q ConversationQuery) ([]ConversationInfo, *ConversationCursor, error)

	// RunningConversations returns a tenant's conversations with a running turn, the longest running first. It returns
	// the page after a cursor, and the cursor of the next page, nil on the last. A page may have fewer entries than the
	// limit, even none, and still have a next one.
	RunningConversations(
		ctx context.Context, tenant string, after ConversationCursor, limit int,
	) ([]ConversationInfo, *ConversationCursor, error)

	// ConversationsVersion returns a value that changes whenever the methods above may return new data, except for
	// turns. It is empty while the tenant has no conversation.
	ConversationsVersion(ctx context.Context, tenant string) (string, error)

	// NameConversation sets the title that a person chose. It needs no turn, and no messages yet.
	NameConversation(ctx context.Context, key Key, title string) error

	// EraseConversation deletes a conversation, and reports whether there was anything to delete. A running turn is
	// lost: its later writes are rejected.
	EraseConversation(ctx context.Context, key Key) (bool, error)
}

// ConversationStore keeps conversations, so that any pod can continue any of them.
//
// Every write belongs to a turn and is fenced. It fails with ErrTurnLost and changes nothing once the turn has ended,
// its lease has lapsed and another turn began, or the store lost the turn.
type ConversationStore interface {
	ConversationIndex

	// BeginTurn takes the turn for the time of lease. It fails with CodeBusy while another holder's lease runs. The
	// error's RetryAfter is the rest of that lease.
	BeginTurn(ctx context.Context, key Key, lease time.Duration) (Turn, error)

	// RenewTurn extends the lease to that time from now.
	RenewTurn(ctx context.Context, t Turn, lease time.Duration) error

	// EndTurn releases the turn. A draft stays: it exists only if its message could not be appended.
	EndTurn(ctx context.Context, t Turn) error

	// AppendMessages appends messages and deletes the draft, atomically. It returns the number of messages after the
	// oldest beyond the cap and MaxHistoryBytes were dropped. The call is idempotent: the last append of a turn is not
	// added a second time, unless TruncateMessages came in between. So a caller that does not know the outcome can
	// retry.
	AppendMessages(ctx context.Context, t Turn, messages ...json.RawMessage) (int, error)

	// SaveDraft stores the message that is being written and replaces the former draft. A draft outlives a lapsed turn,
	// so that the next turn finds it. An empty draft deletes it.
	SaveDraft(ctx context.Context, t Turn, draft json.RawMessage) error

	// TruncateMessages keeps the oldest n messages and deletes the draft.
	TruncateMessages(ctx context.Context, t Turn, n int) error

	// SetTitle names the conversation, unless a person has named it.
	SetTitle(ctx context.Context, t Turn, title string) error

	// SetOwner sets the owner of the conversation, unless it has one.
	SetOwner(ctx context.Context, t Turn, o Owner) error

	// Conversation returns the whole conversation, or the zero value if it is unknown.
	Conversation(ctx context.Context, key Key) (Conversation, error)

	// CountMessages returns how many messages there are.
	CountMessages(ctx context.Context, key Key) (int, error)

	// AppendTrail adds an entry to the short call history that the loop guard of a conversation keeps. It returns at
	// most limit of the last entries, oldest first, including the new one. It needs no turn, because calls run in
	// parallel.
	AppendTrail(ctx context.Context, key Key, entry string, limit int) ([]string, error)

	// Trail returns the last entries, oldest first, at most limit of them.
	Trail(ctx context.Context, key Key, limit int) ([]string, error)
}

// ErrTurnLost is returned for writes of a turn that is not the current one.
var ErrTurnLost = Errorf(CodeCancelled, "The turn was taken over by another pod.")

// ErrTurnTaken returns the error if a turn cannot begin yet, because the holder's lease runs for the time given.
func ErrTurnTaken(remaining time.Duration) *Error {
	return Errorf(CodeBusy, "Another turn of this conversation is running. Retry after it has ended.").
		RetryIn(remaining)
}

// Limits of continuations, in bytes.
const (
	MaxContinuation      = 1 << 20  // of one
	MaxHeldContinuations = 32 << 20 // of one owner; beyond it the oldest are dropped
	ContinuationOverhead = 256      // bytes that each counts for in addition to its data
)

// ContinuationOwner is the owner of continuations. No other owner can read them, or use up their space.
type ContinuationOwner struct {
	Tenant string
	User   string // as in auth.Identity.Scope; empty: all users of the credentials
}

// ContinuationStore keeps the state of a completion that passed a tool call to its caller. The state is kept for a
// while, so that any pod can continue when the caller returns. The store does not interpret the data.
type ContinuationStore interface {
	// KeepContinuation keeps data under an id for ttl and replaces former data. Data longer than MaxContinuation is
	// rejected with CodePayloadTooLarge.
	KeepContinuation(ctx context.Context, o ContinuationOwner, id string, data []byte, ttl time.Duration) error

	// Continuations returns the stored data of ids. It stops before the first that would make the total longer than
	// limit bytes, so callers put the most important ids first.
	Continuations(ctx context.Context, o ContinuationOwner, limit int, ids ...string) (map[string][]byte, error)
}

// ErrContinuationTooLarge is returned for data longer than MaxContinuation.
var ErrContinuationTooLarge = Errorf(CodePayloadTooLarge, "A continuation may have at most %d bytes.", MaxContinuation)
