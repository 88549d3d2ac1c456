package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// ApprovalState is what became of an approval.
type ApprovalState string

// The states of an approval. All but the first are final.
const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalAllowed   ApprovalState = "allowed"
	ApprovalDenied    ApprovalState = "denied"
	ApprovalExpired   ApprovalState = "expired"   // nobody answered in time, which is a denial
	ApprovalWithdrawn ApprovalState = "withdrawn" // the call ended before anybody answered
)

// ApprovalScope is how far an approval that was allowed reaches.
type ApprovalScope string

// The scopes. The last two also make a Grant.
const (
	ScopeOnce       ApprovalScope = "once"
	ScopeAlwaysTool ApprovalScope = "always_tool" // the tool, with any arguments
	ScopeAlwaysArgs ApprovalScope = "always_args" // the tool, with the same arguments
)

// ApproveBy says which approvers may decide about a call.
type ApproveBy string

// Who may decide. A person is a user or, where credentials name none, a credential.
const (
	ApproveAnyone ApproveBy = "anyone" // every approver, whoever made the call
	ApproveOther  ApproveBy = "other"  // another person than the caller
	ApproveTwo    ApproveBy = "two"    // two such persons, both of whom must allow the call
)

// Limits of approvals and grants.
const (
	MaxApprovalArgs  = 64 << 10  // bytes of arguments that a person can be asked about
	MaxPending       = 256       // approvals of a tenant that wait at a time
	MaxPendingOfOne  = 32        // those of one requester
	MaxApprovalBytes = 256 << 20 // of approvals of a tenant that are kept, half of them asked for at once
	MaxGrants        = 1000      // of a tenant
	MaxGrantLife     = 30 * 24 * time.Hour
	ApprovalRetained = time.Hour // how long an approval is kept once it is final
)

// Requester is who asked for something. It is the person or program behind the credential, never a device or model.
type Requester struct {
	User       string `json:"user,omitempty"`
	Credential string `json:"credential,omitempty"`
	Name       string `json:"name,omitempty"` // what people call the credential
}

// Key tells requesters apart: by user if the credential names one, else by credential.
func (r Requester) Key() string {
	if r.User != "" {
		return "user:" + r.User
	}
	return "credential:" + r.Credential
}

// Approval is a call that a person is asked about, and what the person decided. What it was asked for never changes.
type Approval struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`

	DefinitionHash string `json:"definition_hash"` // of the tool
	ArgsDigest     string `json:"args_digest"`     // of Args
	Args           JSON   `json:"-"`               // as they will reach the tool; listings have none

	// Arguments says of arguments where their values come from. Empty: that is not known.
	Arguments []ArgumentSource `json:"arguments,omitempty"`

	SessionID  string `json:"session_id,omitempty"` // where the call goes; empty for a tool of the gateway itself
	DeviceID   string `json:"device_id,omitempty"`
	DeviceName string `json:"device_name,omitempty"`
	Pod        string `json:"pod,omitempty"` // where the call waits; empty for a deferred one

	// Owner is the user whose device the call is for or, if the device is nobody's, the user who asked. Empty: nobody
	// in particular. Whoever may see what belongs to Owner may decide.
	Owner string `json:"owner,omitempty"`

	Requester    Requester `json:"requester"`
	Model        bool      `json:"model,omitempty"`        // a language model asks
	Conversation string    `json:"conversation,omitempty"` // its session, if the gateway keeps it
	Turn         string    `json:"turn,omitempty"`
	Rule         string    `json:"rule"`            // what demands the approval
	Rules        string    `json:"rules,omitempty"` // the ids of all that demand it, in order, separated by spaces
	Reason       string    `json:"reason"`          // the same for people

	// ExactArgs says that values of the arguments were seen only in what came from outside: then "allow always" holds
	// for exactly these arguments, whatever else was granted.
	ExactArgs bool `json:"exact_args,omitempty"`

	// By says which approvers may decide. Empty: all but the credential that made the call (approval.MayDecide).
	By ApproveBy `json:"by,omitempty"`

	// Within is how long a person has to answer, by the policy. Zero: as the gateway is configured.
	Within time.Duration `json:"within,omitempty"`

	// Approvers are who may decide, as far as that is known: users, names of keys, other ways to have the role.
	Approvers []string `json:"approvers,omitempty"`

	// GrantLimit is how long a grant that it makes may last. Zero: MaxGrantLife.
	GrantLimit time.Duration `json:"grant_limit,omitempty"`

	// Deferred says that no pod holds the call: whoever allows it starts it.
	Deferred bool `json:"deferred,omitempty"`

	// AllowedBy is who has allowed a call that a second person must allow. Empty: nobody has, or no second is needed.
	AllowedBy string `json:"-"`

	// First is the vote of AllowedBy.
	First Vote `json:"-"`

	CreatedAt time.Time `json:"-"` // by the store's clock
	ExpiresAt time.Time `json:"-"` // then silence is a denial

	Verdict `json:"-"`
}

// Vote is what one of two persons says who allow a call.
type Vote struct {
	Person string // tells persons apart
	Voter  []byte // how the person was proved, to be checked again; empty: that is not known
}

// ArgumentSource says where the value of one argument was seen first.
type ArgumentSource struct {
	Pointer string `json:"pointer"` // JSON Pointer into the arguments
	Value   string `json:"value"`   // shortened
	Source  string `json:"source"`

	// Record is how the record of a result begins that the value is a field of, as people may read it.
	Record string `json:"record,omitempty"`
}

// Verdict is what was decided. The zero value is that of an approval that is not known.
type Verdict struct {
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"` // users, credentials or devices; empty: nobody did
	DecidedAt time.Time     `json:"decided_at,omitzero"`  // by the store's clock
	Scope     ApprovalScope `json:"scope,omitempty"`      // with ApprovalAllowed
}

// Final reports whether nothing changes the verdict any more.
func (v Verdict) Final() bool { return v.State != ApprovalPending && v.State != "" }

// ApprovalRef names an approval.
type ApprovalRef struct{ Tenant, ID string }

// Ref returns what names the approval.
func (a Approval) Ref() ApprovalRef { return ApprovalRef{a.Tenant, a.ID} }

// approvalIDLen is how many characters of five bits an id has: short enough to be typed.
const approvalIDLen = 16

// NewApprovalID returns a random id, for approvals and grants.
func NewApprovalID() string { return strings.ToLower(rand.Text()[:approvalIDLen]) }

// ValidApprovalID reports whether an id can be one of NewApprovalID.
func ValidApprovalID(id string) bool {
	if len(id) != approvalIDLen {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// ErrNoApproval is returned for an unknown approval, or one of another tenant.
var ErrNoApproval = Errorf(CodeNotFound, "No approval has this id, or it was forgotten some time after its decision.")

// ApprovalStore keeps approvals and grants. The first decision about an approval wins. All methods are safe for
// concurrent use. A failure of the store is an *Error with CodeStoreUnavailable.
type ApprovalStore interface {
	// CreateApproval stores a pending approval that expires after life. request is kept with a deferred one, for
	// ApprovalRequest. CodeBusy if MaxPending or MaxPendingOfOne approvals wait already.
	CreateApproval(ctx context.Context, a Approval, life time.Duration, request []byte) (Approval, error)

	// Approval returns an approval. One whose time is up is expired. ErrNoApproval if there is none.
	Approval(ctx context.Context, tenant, id string) (Approval, error)

	// Verdicts returns the verdicts of approvals in the order of refs, the zero Verdict for one that is not known.
	Verdicts(ctx context.Context, refs []ApprovalRef) ([]Verdict, error)

	// PendingApprovals returns those of a tenant that wait, without arguments, in the order in which they expire.
	PendingApprovals(ctx context.Context, tenant string) ([]Approval, error)

	// DecideApproval makes v the verdict if the approval is pending, and reports whether v counted. vote is that of the
	// decider: an approval by ApproveTwo stays pending, with AllowedBy and First, until a second person allows it, and
	// what one person says twice counts once. lapsed is the person whose earlier vote does not count any more: vote
	// takes its place as the first. It returns the approval as it is then. The store fills in DecidedAt.
	// ErrNoApproval if there is none.
	DecideApproval(
		ctx context.Context, tenant, id string, vote Vote, lapsed string, v Verdict,
	) (a Approval, counted bool, err error)

	// CountWrongAnswer counts an answer that was no decision, and returns how many there were, this one included. Zero:
	// the approval does not wait.
	CountWrongAnswer(ctx context.Context, tenant, id string) (int, error)

	// DueApprovals returns at most limit deferred approvals that are final and not settled. Asked again and again it
	// comes to all of them.
	DueApprovals(ctx context.Context, limit int) ([]ApprovalRef, error)

	// ApprovalRequest returns a deferred approval and the request that was kept with it.
	ApprovalRequest(ctx context.Context, tenant, id string) (a Approval, request []byte, err error)

	// SettleApproval notes that the call of a deferred approval was started, or ended. It is no longer due.
	SettleApproval(ctx context.Context, tenant, id string) error

	GrantStore
}

// Grant lets calls run without a question: what "allow always" leaves behind. It is bound to whoever asked, to where
// the call goes, to the tool as it was defined then, and to the rules that asked: whoever was asked about a call of one
// trusted person has said nothing of calls in a group, or after something from outside was read.
type Grant struct {
	ID             string    `json:"id"`
	Tenant         string    `json:"tenant"`
	Tool           string    `json:"tool"`
	DefinitionHash string    `json:"definition_hash"`
	ArgsDigest     string    `json:"args_digest,omitempty"` // empty: any arguments
	SessionID      string    `json:"session_id,omitempty"`  // where it holds, if the device has no id
	DeviceID       string    `json:"device_id,omitempty"`   // where it holds
	Owner          string    `json:"owner,omitempty"`       // as of Approval
	Requester      Requester `json:"requester"`
	Rules          string    `json:"rules,omitempty"` // whose questions it answers, as of Approval
	Model          bool      `json:"model,omitempty"` // it holds for calls of a model only, else for others only
	Approval       string    `json:"approval_id"`     // that it comes from
	GrantedBy      string    `json:"granted_by"`
	CreatedAt      time.Time `json:"created_at"` // by the store's clock
	ExpiresAt      time.Time `json:"expires_at"`
}

// GrantOf returns the grant that an approval makes when it is allowed with a scope.
func GrantOf(a Approval, scope ApprovalScope) Grant {
	g := Grant{
		Tenant: a.Tenant, Tool: a.Tool, DefinitionHash: a.DefinitionHash, SessionID: a.SessionID, DeviceID: a.DeviceID,
		Owner: a.Owner, Requester: a.Requester, Model: a.Model, Rules: a.Rules,
		Approval: a.ID,
	}
	if scope == ScopeAlwaysArgs {
		g.ArgsDigest = a.ArgsDigest
	}
	return g
}

// Binding is the same for grants of the same thing, and different for others.
func (g Grant) Binding() string {
	where := "device:" + g.DeviceID
	if g.DeviceID == "" {
		where = "session:" + g.SessionID
	}
	h := sha256.New()
	for _, part := range []string{
		g.Tool, g.DefinitionHash, g.ArgsDigest, where, g.Owner, g.Requester.Key(), strconv.FormatBool(g.Model), g.Rules,
	} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Covers reports whether the grant is for what an approval would ask.
func (g Grant) Covers(a Approval) bool {
	binding := g.Binding()
	return binding == GrantOf(a, ScopeAlwaysTool).Binding() || binding == GrantOf(a, ScopeAlwaysArgs).Binding()
}

// ErrNoGrant is returned for an unknown grant, or one of another tenant.
var ErrNoGrant = Errorf(CodeNotFound, "No grant has this id, or it has expired.")

// GrantStore keeps grants. Its methods are safe for concurrent use. A failure of the store is an *Error with
// CodeStoreUnavailable.
type GrantStore interface {
	// PutGrant stores a grant for life, in place of one with the same binding. CodeBusy if the tenant has MaxGrants.
	PutGrant(ctx context.Context, g Grant, life time.Duration) (Grant, error)

	// FindGrant returns a grant with one of the bindings, ErrNoGrant if there is none.
	FindGrant(ctx context.Context, tenant string, bindings ...string) (Grant, error)

	// Grants returns those of a tenant, in the order in which they expire.
	Grants(ctx context.Context, tenant string) ([]Grant, error)

	// RevokeGrant removes a grant and returns it. ErrNoGrant if there is none.
	RevokeGrant(ctx context.Context, tenant, id string) (Grant, error)
}

// Errors of full stores of approvals.
var (
	ErrManyApprovals = Errorf(CodeBusy,
		"%d approvals wait for an answer already. Answer some first: farhand approve list.",
		MaxPending).With(DispatchedNo)
	ErrManyOfOne = Errorf(CodeBusy,
		"%d of your calls wait for an approval already. Wait until some are answered.",
		MaxPendingOfOne).With(DispatchedNo)
	ErrManyGrants = Errorf(CodeBusy,
		"There are %d grants already. Revoke some first: farhand approve grants.", MaxGrants)
)
