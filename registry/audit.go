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

// AuditEntry is one line of a tenant's audit log: an action, its actor and its outcome. It never holds arguments,
// outputs, messages or credentials.
type AuditEntry struct {
	ID     string    `json:"-"` // set by the store; grows along the log
	Tenant string    `json:"-"`
	At     time.Time `json:"at"` // zero: the time of noting
	Pod    string    `json:"pod"`

	Actor   AuditActor `json:"actor"`
	Action  string     `json:"action"`
	Outcome string     `json:"outcome"`
	Code    Code       `json:"code,omitempty"`   // of the error
	Rule    string     `json:"rule,omitempty"`   // what of the policy decided, or which limit was reached
	Reason  string     `json:"reason,omitempty"` // as returned to the caller; a long one is cut

	// Target is the subject of an admin action: the id of a key, a device, an approval or a pairing.
	Target    string `json:"target,omitempty"`
	Tool      string `json:"tool,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	DeviceID  string `json:"device_id,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Turn      string `json:"turn_id,omitempty"`

	// ArgsDigest: SHA-256 of the arguments' text, in hex; that of the call's record and of its approval.
	ArgsDigest string `json:"args_digest,omitempty"`

	// Omitted: lines of this kind that were left out before this one.
	Omitted int `json:"omitted,omitempty"`

	Args JSON `json:"-"` // source of ArgsDigest; hashed outside the path of calls
}

// AuditActor is the actor of an audited action.
type AuditActor struct {
	User       string   `json:"user,omitempty"`
	Credential string   `json:"credential,omitempty"` // the id of the credential, which is no secret
	Name       string   `json:"name,omitempty"`       // what people call the credential
	Roles      []string `json:"roles,omitempty"`
	Source     string   `json:"source,omitempty"` // the address or network that the request came from
}

// Actions of the audit log.
const (
	AuditCall          = "call"     // a call was admitted or rejected
	AuditRegister      = "register" // a device may not register a tool
	AuditLogin         = "login"    // a credential was rejected; sampled
	AuditKeyCreate     = "key.create"
	AuditKeyRevoke     = "key.revoke"
	AuditKeyRotate     = "key.rotate"
	AuditUserErase     = "user.erase"          // the target is the receipt; the user is not named
	AuditDefaultDevice = "user.default_device" // a user's default device was set or removed
	AuditRevoke        = "revoke"              // a user, or a credential that is not a key
	AuditPairAsk       = "pair.ask"
	AuditPairLook      = "pair.look" // an approver looked up a pairing request by its code
	AuditPairDecide    = "pair.decide"
	AuditPairSetup     = "pair.setup" // a setup code was made or, with a device id, used
	AuditDeviceUpdate  = "device.update"
	AuditDeviceRevoke  = "device.revoke"
	AuditDeviceRotate  = "device.rotate" // the credential of a paired device got a new secret
	AuditDeviceTools   = "device.tools"  // tools of a paired device were approved
	AuditDeviceImport  = "device.import" // nodes of an OpenClaw installation were paired
	AuditDeviceWake    = "device.wake"   // how a device is woken was set or removed
	AuditApprovalAsk   = "approval.ask"
	AuditApproval      = "approval.decide"
	AuditGrantRevoke   = "grant.revoke"
	AuditPolicyReload  = "policy.reload"
	AuditSessionKick   = "session.kick"
	AuditSessionRename = "session.rename"
	AuditTurnAbort     = "turn.abort"
	AuditCallCancel    = "call.cancel"
	AuditDoctor        = "doctor" // an admin had the pod check its services and folders
	AuditBackup        = "backup" // an admin read the state file
	AuditTenantKey     = "tenant.key"
	AuditTenantBudget  = "tenant.budget"  // a fleet operator set it
	AuditBudgetWarning = "budget.warning" // a share of a budget is spent
	AuditBudgetSpent   = "budget.spent"
)

// AuditActions returns all actions.
func AuditActions() []string {
	return []string{
		AuditCall, AuditRegister, AuditLogin, AuditKeyCreate, AuditKeyRevoke, AuditRevoke, AuditPairAsk,
		AuditPairLook, AuditPairDecide, AuditPairSetup, AuditDeviceUpdate, AuditDeviceRevoke, AuditDeviceTools,
		AuditApprovalAsk, AuditApproval, AuditGrantRevoke, AuditPolicyReload, AuditSessionKick, AuditSessionRename,
		AuditTurnAbort,
		AuditCallCancel, AuditDoctor, AuditBackup, AuditTenantKey, AuditTenantBudget, AuditBudgetWarning,
		AuditBudgetSpent, AuditKeyRotate, AuditDeviceRotate, AuditDeviceWake, AuditUserErase, AuditDefaultDevice,
		AuditDeviceImport,
	}
}

// Outcomes of audited actions.
const (
	AuditAllowed = "allowed" // admitted, or done
	AuditDenied  = "denied"  // rejected by a person or a rule
	AuditFailed  = "failed"  // impossible or invalid
	AuditSeen    = "seen"    // viewed without a decision
)

// AuditOutcomes returns all outcomes.
func AuditOutcomes() []string { return []string{AuditAllowed, AuditDenied, AuditFailed, AuditSeen} }

// Limits of a line, in bytes. Longer texts are cut.
const (
	MaxAuditReason = 512
	maxAuditName   = 256
	maxAuditRoles  = 8
)

// Decide sets the outcome and, after a failure, the code, rule and reason.
func (e *AuditEntry) Decide(err error) {
	if err == nil {
		e.Outcome = AuditAllowed
		return
	}
	failure := AsError(err)
	e.Outcome, e.Code, e.Reason = AuditFailed, failure.Code, failure.Message
	e.Rule = failure.Rule
	switch failure.Code {
	case CodeUnauthenticated, CodeForbidden, CodePolicyDenied, CodeHookCancelled, CodeApprovalDenied, CodeRateLimited,
		CodeBudgetExceeded:
		e.Outcome = AuditDenied
	}
}

// Trim cuts the texts of a line. It hashes arguments that are too long to hold in memory until the line is written.
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

// DigestArgs sets ArgsDigest and drops the arguments.
func (e *AuditEntry) DigestArgs() {
	if e.Args.IsZero() {
		return
	}
	sum := sha256.Sum256(e.Args.Raw())
	e.ArgsDigest, e.Args = hex.EncodeToString(sum[:]), JSON{}
}

// MemorySize returns the approximate size of the line in memory, in bytes.
func (e *AuditEntry) MemorySize() int { return lineWeight + len(e.Reason) + e.Args.Len() }

// AuditQuery selects lines. Empty fields do not restrict.
type AuditQuery struct {
	Tenant string

	// From and To bound the time of writing by the store's clock. From is inclusive, To exclusive. A line is written
	// shortly after its event.
	From, To time.Time

	User, Credential, Action, Outcome, Tool, SessionID, CallID string

	Before string // the cursor that the page before returned
	Limit  int    // most lines returned; zero means 100
}

// Matches reports whether a line matches all of the query's fields except the times.
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

// AuditStore keeps the audit logs. Entries cannot be changed; a full log drops its oldest lines.
type AuditStore interface {
	// AppendAudit adds lines to the logs of their tenants, in order.
	AppendAudit(ctx context.Context, entries []AuditEntry) error

	// ReadAudit returns the selected lines, newest first, and the cursor of the next page, empty on the last. A page
	// scans a bounded part of the log, so it may have fewer lines than the limit, even none, and still have a next
	// page. An invalid cursor fails with CodeInvalidRequest.
	ReadAudit(ctx context.Context, q AuditQuery) (page []AuditEntry, next string, err error)
}

// AuditScan is the approximate number of lines that one page scans.
const AuditScan = 10_000

// AuditID is a position in an audit log: a batch of lines written together, and the number of a line in it.
type AuditID struct {
	FeedID
	Line int
}

var auditIDPattern = regexp.MustCompile(`^(\d{1,18}-\d{1,18})\.(\d{1,6})$`)

// ParseAuditID parses a line's id. It fails with CodeInvalidRequest.
func ParseAuditID(text string) (id AuditID, err error) {
	if !auditIDPattern.MatchString(text) {
		return id, Errorf(CodeInvalidRequest, "The position in the audit log is malformed. Use one that the gateway "+
			"returned.")
	}
	feed, line, _ := strings.Cut(text, ".")
	id.Line, _ = strconv.Atoi(line) // cannot fail: at most six digits
	id.FeedID, err = ParseFeedID(feed)
	return id, err
}

// String returns the format that ParseAuditID reads.
func (id AuditID) String() string { return id.FeedID.String() + "." + strconv.Itoa(id.Line) }

// Usage sums the use of tool calls and conversation turns.
type Usage struct {
	Calls        int64 `json:"calls"`
	Failures     int64 `json:"failures"`     // calls that did not run, and calls whose tool failed
	Milliseconds int64 `json:"ms"`           // how long the calls took together
	BytesIn      int64 `json:"bytes_in"`     // of arguments
	BytesOut     int64 `json:"bytes_out"`    // of outputs
	InputTokens  int64 `json:"input_tokens"` // read by models
	OutputTokens int64 `json:"output_tokens"`
}

// Plus returns the sum of both usages.
func (u Usage) Plus(o Usage) Usage {
	return Usage{
		u.Calls + o.Calls, u.Failures + o.Failures, u.Milliseconds + o.Milliseconds, u.BytesIn + o.BytesIn,
		u.BytesOut + o.BytesOut, u.InputTokens + o.InputTokens, u.OutputTokens + o.OutputTokens,
	}
}

// UsageRow is one user's use of one tool on one day.
type UsageRow struct {
	Tenant string
	Day    string // in UTC, as UsageDay returns it
	User   string // empty: identities without a user; UsageOther: users without a row of their own
	Key    string // for an identity without a user: its credential's name; empty: it has none
	Tool   string // or one of the names below; no tool can have them
	Usage
}

// Names in place of a user or a tool.
const (
	UsageOther   = "(other)"   // everything that had no room for a row
	UsageUnknown = "(unknown)" // calls whose tool was not found
	UsageModels  = "(models)"  // tokens of turns
)

// maxUsageName is the limit of names in rows, in bytes. Longer names are cut.
const maxUsageName = 128

// Trim cuts the names of a row.
func (r *UsageRow) Trim() {
	r.User, r.Tool = TruncateText(r.User, maxUsageName), TruncateText(r.Tool, maxUsageName)
	r.Key = TruncateText(r.Key, maxUsageName)
}

// UsageDay returns the UTC day of a time.
func UsageDay(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// UsageStore counts usage.
type UsageStore interface {
	// AddUsage adds to the rows with the same tenant, day and names. Without room for a new row, it adds to the row
	// whose user and tool are UsageOther.
	AddUsage(ctx context.Context, rows []UsageRow) error

	// ReadUsage returns all rows of a tenant and day, unordered, up to the limit of rows per day.
	ReadUsage(ctx context.Context, tenant, day string) ([]UsageRow, error)
}
