package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// AuditEntry is one line of the audit log of a tenant: who did what, or was not allowed to. It never holds arguments,
// outputs, messages or credentials.
type AuditEntry struct {
	ID     string    `json:"-"` // set by the store; grows along the log
	Tenant string    `json:"-"`
	At     time.Time `json:"at"` // zero when it is noted: then now
	Pod    string    `json:"pod"`

	Actor   AuditActor `json:"actor"`
	Action  string     `json:"action"`
	Outcome string     `json:"outcome"`
	Code    Code       `json:"code,omitempty"`   // of the error, unless the outcome is AuditAllowed
	Rule    string     `json:"rule,omitempty"`   // the rule of the policy, or the hook, that decided
	Reason  string     `json:"reason,omitempty"` // as the asker was told, cut to MaxAuditReason

	// Target is what an action of an admin is about: the id of a key, a device, an approval or a pairing.
	Target    string `json:"target,omitempty"`
	Tool      string `json:"tool,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	DeviceID  string `json:"device_id,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Turn      string `json:"turn_id,omitempty"`

	// ArgsDigest is the SHA-256 of the arguments' text as the hooks left it, in hex: what the call's record and its
	// approval have, too.
	ArgsDigest string `json:"args_digest,omitempty"`

	// Omitted is how many lines of this kind were left out before this one, because there were too many at once.
	Omitted int `json:"omitted,omitempty"`

	Args JSON `json:"-"` // what ArgsDigest is made of, off the path of calls
}

// AuditActor is who did something.
type AuditActor struct {
	User       string   `json:"user,omitempty"`
	Credential string   `json:"credential,omitempty"` // as in auth.Identity: a name, no secret
	Name       string   `json:"name,omitempty"`       // what people call the credential
	Roles      []string `json:"roles,omitempty"`
	Source     string   `json:"source,omitempty"` // address or network that it was done from
}

// Actions of the audit log.
const (
	AuditCall          = "call"     // a call was let through, or refused
	AuditRegister      = "register" // a device may not register a tool
	AuditLogin         = "login"    // a credential was refused; sampled
	AuditKeyCreate     = "key.create"
	AuditKeyRevoke     = "key.revoke"
	AuditRevoke        = "revoke" // a user, or a credential that is no key
	AuditPairAsk       = "pair.ask"
	AuditPairLook      = "pair.look" // an approver looked at a request to pair, by its code
	AuditPairDecide    = "pair.decide"
	AuditDeviceUpdate  = "device.update"
	AuditDeviceRevoke  = "device.revoke"
	AuditDeviceTools   = "device.tools" // tools of a paired device were approved
	AuditApprovalAsk   = "approval.ask"
	AuditApproval      = "approval.decide"
	AuditGrantRevoke   = "grant.revoke"
	AuditPolicyReload  = "policy.reload"
	AuditSessionKick   = "session.kick"
	AuditSessionRename = "session.rename"
	AuditTurnAbort     = "turn.abort"
	AuditCallCancel    = "call.cancel"
)

// AuditActions returns all actions.
func AuditActions() []string {
	return []string{
		AuditCall, AuditRegister, AuditLogin, AuditKeyCreate, AuditKeyRevoke, AuditRevoke, AuditPairAsk,
		AuditPairLook, AuditPairDecide, AuditDeviceUpdate, AuditDeviceRevoke, AuditDeviceTools, AuditApprovalAsk,
		AuditApproval, AuditGrantRevoke, AuditPolicyReload, AuditSessionKick, AuditSessionRename, AuditTurnAbort,
		AuditCallCancel,
	}
}

// Outcomes of what is audited.
const (
	AuditAllowed = "allowed" // it was let through, or done
	AuditDenied  = "denied"  // somebody or something decided against it
	AuditFailed  = "failed"  // it could not be done, or made no sense
	AuditSeen    = "seen"    // it was looked at, and nothing was decided
)

// AuditOutcomes returns all outcomes.
func AuditOutcomes() []string { return []string{AuditAllowed, AuditDenied, AuditFailed, AuditSeen} }

// Bounds of a line, in bytes. Longer texts are cut.
const (
	MaxAuditReason = 512
	maxAuditName   = 256
	maxAuditRoles  = 8
)

// Decide fills in the outcome, and after a failure the code, the rule and the reason.
func (e *AuditEntry) Decide(err error) {
	if err == nil {
		e.Outcome = AuditAllowed
		return
	}
	failure := AsError(err)
	e.Outcome, e.Code, e.Reason = AuditFailed, failure.Code, failure.Message
	e.Rule = failure.Rule
	switch failure.Code {
	case CodeUnauthenticated, CodeForbidden, CodePolicyDenied, CodeHookCancelled, CodeApprovalDenied, CodeRateLimited:
		e.Outcome = AuditDenied
	}
}

// Trim cuts the texts of a line, and digests arguments that are too long to wait in memory until it is written.
func (e *AuditEntry) Trim() {
	e.Reason = TruncateText(e.Reason, MaxAuditReason)
	for _, text := range []*string{
		&e.Actor.User, &e.Actor.Credential, &e.Actor.Name, &e.Actor.Source, &e.Action, &e.Outcome, &e.Rule, &e.Target,
		&e.Tool, &e.SessionID, &e.DeviceID, &e.CallID, &e.Turn,
	} {
		if len(*text) > maxAuditName {
			*text = TruncateText(*text, maxAuditName)
		}
	}
	e.Actor.Roles = e.Actor.Roles[:min(len(e.Actor.Roles), maxAuditRoles)]
	if e.Args.Len() > promptDigest {
		e.DigestArgs()
	}
}

// DigestArgs fills in ArgsDigest, and drops the arguments.
func (e *AuditEntry) DigestArgs() {
	if e.Args.IsZero() {
		return
	}
	sum := sha256.Sum256(e.Args.Raw())
	e.ArgsDigest, e.Args = hex.EncodeToString(sum[:]), JSON{}
}

// MemorySize returns about how many bytes of memory the line takes.
func (e *AuditEntry) MemorySize() int { return lineWeight + len(e.Reason) + e.Args.Len() }

// AuditQuery selects lines. Empty fields do not restrict.
type AuditQuery struct {
	Tenant string

	// From and To are the time in which the lines were written, by the store's clock: From included, To not. A line is
	// written a moment after what it tells of.
	From, To time.Time

	User, Credential, Action, Outcome, Tool, SessionID, CallID string

	Before string // the cursor that the page before returned
	Limit  int    // at most so many lines; zero means 100
}

// Matches reports whether a line is one of those that are asked for, but for their times.
func (q AuditQuery) Matches(e AuditEntry) bool {
	for _, pair := range [...][2]string{
		{q.User, e.Actor.User}, {q.Credential, e.Actor.Credential}, {q.Action, e.Action}, {q.Outcome, e.Outcome},
		{q.Tool, e.Tool}, {q.SessionID, e.SessionID}, {q.CallID, e.CallID},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	return true
}

// Defaults of how long the audit log of a tenant is kept after its last line, how many lines it has, and how many bytes
// they have. Both bounds are rough.
const (
	DefaultAuditTTL   = 90 * 24 * time.Hour
	DefaultAuditCap   = 1_000_000
	DefaultAuditBytes = 256 << 20
)

// AuditStore keeps the audit logs. Nothing in one can be changed; the oldest lines go when it is full. Its methods are
// safe for concurrent use, and keep no slice that they are given.
type AuditStore interface {
	// AppendAudit adds lines to the logs of their tenants, in order.
	AppendAudit(ctx context.Context, entries []AuditEntry) error

	// ReadAudit returns the lines that a query selects, newest first, and the cursor of the next page, empty on the
	// last. A page may have fewer lines than the limit, even none, and still have a next one, because one page looks at
	// a bounded part of the log. CodeInvalidRequest for a cursor that is none.
	ReadAudit(ctx context.Context, q AuditQuery) (page []AuditEntry, next string, err error)
}

// AuditScan is how many lines one page looks at, about.
const AuditScan = 10_000

// AuditID is a place in an audit log: that of the lines that were written together, and the number of one of them.
type AuditID struct {
	FeedID
	Line int
}

var auditIDPattern = regexp.MustCompile(`^(\d{1,18}-\d{1,18})\.(\d{1,6})$`)

// ParseAuditID reads the id of a line. The error is CodeInvalidRequest.
func ParseAuditID(text string) (id AuditID, err error) {
	if !auditIDPattern.MatchString(text) {
		return id, Errorf(CodeInvalidRequest, "The place in the audit log is malformed; pass one that was returned.")
	}
	feed, line, _ := strings.Cut(text, ".")
	id.Line, _ = strconv.Atoi(line) // cannot fail: at most six digits
	id.FeedID, err = ParseFeedID(feed)
	return id, err
}

// String returns what ParseAuditID reads.
func (id AuditID) String() string { return id.FeedID.String() + "." + strconv.Itoa(id.Line) }

// Usage is what was used: by calls of tools, and by turns of conversations.
type Usage struct {
	Calls        int64 `json:"calls"`
	Failures     int64 `json:"failures"` // of the calls: those that did not run, and those whose tool failed
	Milliseconds int64 `json:"ms"`       // the calls took together
	BytesIn      int64 `json:"bytes_in"` // arguments
	BytesOut     int64 `json:"bytes_out"`
	InputTokens  int64 `json:"input_tokens"` // read by models
	OutputTokens int64 `json:"output_tokens"`
}

// Plus returns the sum of two.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.Calls + o.Calls, u.Failures + o.Failures, u.Milliseconds + o.Milliseconds, u.BytesIn + o.BytesIn,
		u.BytesOut + o.BytesOut, u.InputTokens + o.InputTokens, u.OutputTokens + o.OutputTokens,
	}
}

// UsageRow is what one user used of one tool on one day.
type UsageRow struct {
	Tenant string
	Day    string // in UTC, as UsageDay returns it
	User   string // empty: identities that name no user; UsageOther: users that there was no room for
	Key    string // of an identity that names no user: the name of its credential; empty: none of its own
	Tool   string // or one of the names below, which no tool can have
	Usage
}

// Names in place of a user's or a tool's.
const (
	UsageOther   = "(other)"   // what there was no room for
	UsageUnknown = "(unknown)" // calls for which no tool was found
	UsageModels  = "(models)"  // tokens of turns
)

// Bounds of names in rows, in bytes. Longer ones are cut.
const maxUsageName = 128

// Trim cuts the names of a row.
func (r *UsageRow) Trim() {
	r.User, r.Tool = TruncateText(r.User, maxUsageName), TruncateText(r.Tool, maxUsageName)
	r.Key = TruncateText(r.Key, maxUsageName)
}

// UsageDay returns the day of a time.
func UsageDay(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// Defaults of how long the usage of a day is kept, and how many rows a tenant has for a day. What comes when there is
// no room for its row is counted in the one whose user and tool are UsageOther.
const (
	DefaultUsageTTL  = 90 * 24 * time.Hour
	DefaultUsageRows = 10_000
)

// UsageStore counts what is used. It is safe for concurrent use, and keeps no slice that it is given.
type UsageStore interface {
	// AddUsage adds to the rows of those tenants and days.
	AddUsage(ctx context.Context, rows []UsageRow) error

	// ReadUsage returns all rows of a tenant and day, in no order: as many as one may have, at most.
	ReadUsage(ctx context.Context, tenant, day string) ([]UsageRow, error)
}
