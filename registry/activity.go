package registry

import (
	"context"
	"time"
	"unicode/utf8"
)

// Activity is one line of a tenant's feed, for dashboards.
type Activity struct {
	ID        string    `json:"-"` // set by the store; grows along the feed
	Tenant    string    `json:"-"`
	Type      string    `json:"type"`
	At        time.Time `json:"at"`
	Pod       string    `json:"pod"`
	SessionID string    `json:"session_id,omitempty"`
	DeviceID  string    `json:"device_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"` // of the session; a call and a turn have their own field
	Tools     []string  `json:"tools,omitempty"`   // with ActivityTools: all tools offered now
	Reason    string    `json:"reason,omitempty"`
	Call      *Record   `json:"call,omitempty"` // with ActivityCall: without result
	Turn      *TurnNote `json:"turn,omitempty"` // with ActivityTurnStarted and ActivityTurnFinished

	Approval *ApprovalNote `json:"approval,omitempty"` // with ActivityApprovalRequested and ActivityApprovalDecided
}

// ApprovalNote is the feed's summary of an approval. It never contains arguments.
type ApprovalNote struct {
	ID        string        `json:"id"`
	CallID    string        `json:"call_id"`
	Tool      string        `json:"tool"`
	Owner     string        `json:"owner,omitempty"` // as in Approval
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// TurnNote is the feed's summary of a turn of a conversation. It never contains messages. All but the first three
// fields are set only for a finished turn.
type TurnNote struct {
	ID         string `json:"id"`
	Model      string `json:"model"`
	UserID     string `json:"user_id,omitempty"` // the user who started the turn
	Outcome    string `json:"outcome,omitempty"` // done, aborted or error
	Code       string `json:"code,omitempty"`    // of the error
	Calls      int    `json:"calls,omitempty"`   // tool calls requested by the model
	Input      int    `json:"input_tokens,omitempty"`
	Output     int    `json:"output_tokens,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
}

// ActivityOwner is the owner of a line of the feed.
type ActivityOwner struct {
	User    string
	Private bool // about a call or a turn: without an owner, it is not visible to every user
}

// Owner returns the line's owner.
func (a *Activity) Owner() ActivityOwner {
	switch {
	case a.Call != nil:
		return ActivityOwner{a.Call.UserID, true}
	case a.Turn != nil:
		return ActivityOwner{a.Turn.UserID, true}
	case a.Approval != nil: // users who may see approvals without an owner may decide them
		return ActivityOwner{User: a.Approval.Owner}
	default:
		return ActivityOwner{User: a.UserID}
	}
}

// SeenBy reports whether a viewer may see the line. An empty viewer sees everything.
func (o ActivityOwner) SeenBy(viewer string) bool {
	return viewer == "" || o.User == viewer || o.User == "" && !o.Private
}

// Summary returns the record for the feed: without the tool's output and the caller's note, and with errors of at most
// MaxErrorText.
func (r Record) Summary() Record {
	r.Proof, r.Caller = "", ""
	if r.Result != nil {
		r.Brief, r.Group = true, r.Group.With(r.Result)
		r.Result = &Result{Success: r.Result.Success, Error: TruncateText(r.Result.Error, MaxErrorText)}
	}
	if e := r.Err; e != nil && (len(e.Message) > MaxErrorText || len(e.Violations)+len(e.Candidates) > 0) {
		short := *e
		short.Message, short.Violations, short.Candidates = TruncateText(e.Message, MaxErrorText), nil, nil
		r.Err = &short
	}
	return r
}

// MaxErrorText is the most bytes of an error that the feed keeps.
const MaxErrorText = 1 << 10

// TruncateText is Truncate with the mark "…".
func TruncateText(s string, limit int) string { return Truncate(s, limit, "…") }

// Truncate returns at most limit bytes of s, in whole characters. A truncated text ends with the mark, and does not
// share memory with s.
func Truncate(s string, limit int, mark string) string {
	if len(s) <= limit {
		return s
	}
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// Types of activity.
const (
	ActivityConnected    = "session.connected"
	ActivityUpdated      = "session.updated" // device, labels or capabilities changed
	ActivityDisconnected = "session.disconnected"
	ActivityTools        = "session.tools"
	ActivityCall         = "call.finished"
	ActivityCallQueued   = "call.queued"   // the call waits for its device
	ActivityCallProgress = "call.progress" // the device has begun; the call's own log has the rest
	ActivityTurnStarted  = "turn.started"
	ActivityTurnFinished = "turn.finished"
	ActivityPodDied      = "pod.died"

	ActivityApprovalRequested = "approval.requested"
	ActivityApprovalDecided   = "approval.decided" // also when it expired without an answer

	ActivityBudgetWarning = "budget.warning" // a share of a day's budget is spent
	ActivityBudgetSpent   = "budget.spent"
)

// ActivityStore keeps the feed, capped per tenant in lines and in bytes. Entries that cannot be parsed are skipped.
type ActivityStore interface {
	// AppendActivity adds to the feeds, in order.
	AppendActivity(ctx context.Context, all []Activity) error

	// ReadActivity returns at most limit entries of a feed in order, starting after the one with the id after. If there
	// are none, it waits for up to wait. The empty id is the beginning of the feed.
	ReadActivity(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]Activity, error)

	// LastActivity returns at most limit entries before the one with id before, newest first. The empty id is the end
	// of the feed.
	LastActivity(ctx context.Context, tenant, before string, limit int) ([]Activity, error)

	// FindCall returns the record of a finished call while the feed has it, and CodeCallNotFound otherwise. Both cases
	// are cheap.
	FindCall(ctx context.Context, tenant, callID string) (Record, error)
}
