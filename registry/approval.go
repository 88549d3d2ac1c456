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

// ApprovalState is the state of an approval.
type ApprovalState string

// The states of an approval. All but the first are final.
const (
	ApprovalPending   ApprovalState = "pending"
	ApprovalAllowed   ApprovalState = "allowed"
	ApprovalDenied    ApprovalState = "denied"
	ApprovalExpired   ApprovalState = "expired"   // no answer in time; counts as a denial
	ApprovalWithdrawn ApprovalState = "withdrawn" // the call ended before an answer
)

// ApprovalScope is how far an allowed approval reaches.
type ApprovalScope string

// The scopes. The last two also make a Grant.
const (
	ScopeOnce       ApprovalScope = "once"
	ScopeAlwaysTool ApprovalScope = "always_tool" // the tool, with any arguments
	ScopeAlwaysArgs ApprovalScope = "always_args" // the tool, with the same arguments
)

// ApproveBy says which approvers may decide about a call.
type ApproveBy string

// The rules. A person is a user or, if the credential names no user, the credential.
const (
	ApproveAnyone ApproveBy = "anyone" // every approver, including the caller
	ApproveOther  ApproveBy = "other"  // a person other than the caller
	ApproveTwo    ApproveBy = "two"    // two persons other than the caller; both must allow the call
)

// Limits of approvals and grants.
const (
	MaxApprovalArgs  = 64 << 10  // bytes of arguments that an approval can show
	MaxPending       = 256       // pending approvals of a tenant
	MaxPendingOfOne  = 32        // pending approvals of one requester
	MaxApprovalBytes = 256 << 20 // bytes of stored approvals of a tenant; half may be requested at once
	MaxGrants        = 1000      // per tenant
	MaxGrantsOfOne   = 125       // given by one person, device, device's credential, or by the devices of one user
	MaxGrantLife     = 30 * 24 * time.Hour
	ApprovalRetained = time.Hour // how long a final approval is kept
	MaxComment       = 500       // bytes of a decider's comment
)

// Requester is the person or program behind the credential that made a request, never a device or a model.
type Requester struct {
	User       string `json:"user,omitempty"`
	Credential string `json:"credential,omitempty"`
	Name       string `json:"name,omitempty"` // display name of the credential
}

// Key identifies the requester: by user if the credential names one, else by credential.
func (r Requester) Key() string {
	if r.User != "" {
		return "user:" + r.User
	}
	return "credential:" + r.Credential
}

// Approval is a call that needs a person's decision, and that decision. The description of the call never changes.
type Approval struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`

	DefinitionHash string           `json:"definition_hash"`     // of the tool
	ArgsDigest     string           `json:"args_digest"`         // of Args
	Args           JSON             `json:"-"`                   // as they will reach the tool; omitted from listings
	Arguments      []ArgumentSource `json:"arguments,omitempty"` // sources of argument values; empty: unknown

	Effects *Effects `json:"effects,omitempty"` // as the tool declares; nil: unknown

	SessionID  string `json:"session_id,omitempty"` // the call's target; empty for a tool of the gateway itself
	DeviceID   string `json:"device_id,omitempty"`
	DeviceName string `json:"device_name,omitempty"`

	// Devices are the devices that a group call wants to call. The approval covers its calls of exactly these, once.
	// Nil: the call has one target.
	Devices []ApprovedDevice `json:"devices,omitempty"`

	Pod string `json:"pod,omitempty"` // the pod that holds the call; empty for a deferred call

	// Owner is the user who owns the device of the call or, if the device has no owner, the user who made the call.
	// Empty: no particular user. Callers that may see what belongs to Owner may decide.
	Owner string `json:"owner,omitempty"`

	// Unowned says that the device of the call has no owner.
	Unowned bool `json:"unowned,omitempty"`

	Requester    Requester `json:"requester"`
	Model        bool      `json:"model,omitempty"`        // a language model made the call
	Conversation string    `json:"conversation,omitempty"` // the session of the conversation, if the gateway stores it
	Turn         string    `json:"turn,omitempty"`
	Rule         string    `json:"rule"`            // the rule that requires the approval
	Rules        string    `json:"rules,omitempty"` // ids of all rules that require it, in order, separated by spaces
	Reason       string    `json:"reason"`          // the same for people

	// ExactArgs says that some argument values were seen only in external content. "Allow always" then covers exactly
	// these arguments, whatever else was granted.
	ExactArgs bool `json:"exact_args,omitempty"`

	By         ApproveBy     `json:"by,omitempty"`          // empty: all but the credential that made the call
	Within     time.Duration `json:"within,omitempty"`      // for an answer; zero: the gateway's configured limit
	Approvers  []string      `json:"approvers,omitempty"`   // known users, names of keys, other ways to have the role
	GrantLimit time.Duration `json:"grant_limit,omitempty"` // longest life of its grant; zero: MaxGrantLife
	Deferred   bool          `json:"deferred,omitempty"`    // no pod holds the call; who allows it starts it

	AllowedBy string    `json:"-"` // the first of two persons to allow the call; empty: no vote yet, or one suffices
	First     Vote      `json:"-"` // of AllowedBy
	CreatedAt time.Time `json:"-"` // by the store's clock
	ExpiresAt time.Time `json:"-"` // an unanswered approval counts as denied from here on

	Verdict `json:"-"`
}

// MaxApprovedDevices is how many devices one approval names: a person reads the list.
const MaxApprovedDevices = 100

// ApprovedDevice is one of the devices that an approval covers.
type ApprovedDevice struct {
	SessionID string `json:"session_id"`
	DeviceID  string `json:"device_id,omitempty"`
	Name      string `json:"name,omitempty"` // as the device calls itself
	UserID    string `json:"user_id,omitempty"`
}

// Vote is the decision of one of the two persons who must allow a call.
type Vote struct {
	Person string // identifies the person
	Voter  []byte // the person's proof of identity, for a later check; empty: unknown
}

// ArgumentSource says where the value of one argument was seen first.
type ArgumentSource struct {
	Pointer string `json:"pointer"` // JSON Pointer into the arguments
	Value   string `json:"value"`   // shortened
	Source  string `json:"source"`  // who named the value first; `model`: it appears first in this call

	// How the record of a result begins that the value is a field of.
	Record string `json:"record,omitempty"`
}

// Verdict is the decision about an approval. The zero value is the verdict of an unknown approval.
type Verdict struct {
	State     ApprovalState `json:"state"`
	DecidedBy string        `json:"decided_by,omitempty"` // a user, credential or device; empty: no decider
	DecidedAt time.Time     `json:"decided_at,omitzero"`  // by the store's clock
	Scope     ApprovalScope `json:"scope,omitempty"`      // with ApprovalAllowed
	Comment   string        `json:"comment,omitempty"`    // of the decider, one line; at most MaxComment bytes
}

// Final reports whether the verdict can no longer change.
func (v Verdict) Final() bool { return v.State != ApprovalPending && v.State != "" }

// ApprovalRef names an approval.
type ApprovalRef struct{ Tenant, ID string }

// Concerns reports whether the approval is about a call for the session's device: the session id is the same, and still
// belongs to the same user and device. A forgotten id may belong to others now.
func (a Approval) Concerns(s Session) bool {
	sameUser := a.Owner == s.UserID || s.UserID == "" && a.Unowned
	return a.Tenant == s.Tenant && a.SessionID == s.Key.Session && sameUser &&
		(a.DeviceID == "" || a.DeviceID == s.DeviceID)
}

// Ref returns the approval's reference.
func (a Approval) Ref() ApprovalRef { return ApprovalRef{a.Tenant, a.ID} }

// approvalIDLen is the length of an id in characters of five bits each: short enough to type.
const approvalIDLen = 16

// NewApprovalID returns a random id, for approvals and grants.
func NewApprovalID() string { return strings.ToLower(rand.Text()[:approvalIDLen]) }

// ValidApprovalID reports whether an id has the format of NewApprovalID.
func ValidApprovalID(id string) bool {
	return len(id) == approvalIDLen && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ErrNoApproval is returned if an approval is unknown or belongs to another tenant.
var ErrNoApproval = Errorf(CodeNotFound, "No approval has this id, or its record has expired.")

// ApprovalStore keeps approvals and grants. The first decision about an approval wins.
type ApprovalStore interface {
	// CreateApproval stores a pending approval that expires after life. A deferred approval also keeps request, for
	// ApprovalRequest. It fails with CodeBusy if MaxPending or MaxPendingOfOne approvals are already pending.
	CreateApproval(ctx context.Context, a Approval, life time.Duration, request []byte) (Approval, error)

	// Approval returns an approval, expired if its time is up. It fails with ErrNoApproval if it does not exist.
	Approval(ctx context.Context, tenant, id string) (Approval, error)

	// Verdicts returns verdicts in the order of refs. An unknown approval has the zero Verdict.
	Verdicts(ctx context.Context, refs []ApprovalRef) ([]Verdict, error)

	// PendingApprovals returns a tenant's pending approvals without arguments, in the order of their expiry.
	PendingApprovals(ctx context.Context, tenant string) ([]Approval, error)

	// DecideApproval sets the verdict of a pending approval to v, and reports whether v counted. It returns the updated
	// approval. The store fills in DecidedAt. It fails with ErrNoApproval if it does not exist.
	//
	// With ApproveTwo, the first allowing vote is stored in AllowedBy and First, and the approval stays pending until a
	// second person allows it. Two votes of one person count once. lapsed names a person whose earlier vote is no
	// longer valid: the new vote replaces it as the first.
	DecideApproval(
		ctx context.Context, tenant, id string, vote Vote, lapsed string, v Verdict,
	) (a Approval, counted bool, err error)

	// CountWrongAnswer counts an invalid answer and returns the new count. Zero: the approval is not pending.
	CountWrongAnswer(ctx context.Context, tenant, id string) (int, error)

	// DueApprovals returns at most limit deferred approvals that are final and not settled. Repeated calls reach all of
	// them.
	DueApprovals(ctx context.Context, limit int) ([]ApprovalRef, error)

	// ApprovalRequest returns a deferred approval and its stored request.
	ApprovalRequest(ctx context.Context, tenant, id string) (a Approval, request []byte, err error)

	// SettleApproval marks a deferred approval as settled: its call was started, or ended. It is no longer due.
	SettleApproval(ctx context.Context, tenant, id string) error

	GrantStore
}

// Grant lets later calls run without approval: the result of "allow always". It is bound to the requester, the target
// of the call, the tool's definition at that time, and the rules that required the approval. An approval of a call by
// one trusted person says nothing about calls in a group, or after external content was read.
type Grant struct {
	ID             string    `json:"id"`
	Tenant         string    `json:"tenant"`
	Tool           string    `json:"tool"`
	DefinitionHash string    `json:"definition_hash"`
	ArgsDigest     string    `json:"args_digest,omitempty"` // empty: any arguments
	SessionID      string    `json:"session_id,omitempty"`  // the grant's target, if the device has no id
	DeviceID       string    `json:"device_id,omitempty"`   // the grant's target
	Owner          string    `json:"owner,omitempty"`       // as in Approval
	Unowned        bool      `json:"unowned,omitempty"`     // as in Approval
	Requester      Requester `json:"requester"`
	Rules          string    `json:"rules,omitempty"` // the rules it satisfies, as in Approval
	Model          bool      `json:"model,omitempty"` // true: for a model's calls only; false: for other calls only
	Approval       string    `json:"approval_id"`     // the approval that made it
	GrantedBy      string    `json:"granted_by"`
	GivenWith      string    `json:"given_with,omitempty"` // the credential of a device that gave it
	CreatedAt      time.Time `json:"created_at"`           // by the store's clock
	ExpiresAt      time.Time `json:"expires_at"`
}

// Givers name who gave the grant, for MaxGrantsOfOne: the person or device, a device's stored credential, and the user
// of a device. A device without a credential of its own can choose any id, and a user can have many devices. An
// approver who has only a key or the shared token may decide for many people, and has none.
func (g *Grant) Givers() []string {
	if g.GivenWith == "" && (g.GrantedBy == "token" || strings.HasPrefix(g.GrantedBy, "key:")) {
		return nil
	}
	all := []string{g.GrantedBy}
	if g.GivenWith == "" {
		return all
	}
	if IsStoredCredential(g.GivenWith) {
		all = append(all, "with "+g.GivenWith)
	}
	if g.Owner != "" {
		all = append(all, "devices of "+g.Owner)
	}
	return all
}

// GrantOf returns the grant that an approval makes when it is allowed with a scope.
func GrantOf(a Approval, scope ApprovalScope) Grant {
	g := Grant{
		Tenant: a.Tenant, Tool: a.Tool, DefinitionHash: a.DefinitionHash, SessionID: a.SessionID, DeviceID: a.DeviceID,
		Owner: a.Owner, Unowned: a.Unowned, Requester: a.Requester, Model: a.Model, Rules: a.Rules,
		Approval: a.ID,
	}
	if scope == ScopeAlwaysArgs {
		g.ArgsDigest = a.ArgsDigest
	}
	return g
}

// Binding returns a digest of what the grant is bound to. Grants for the same thing have the same binding.
func (g Grant) Binding() string {
	where := "device:" + g.DeviceID
	if g.DeviceID == "" {
		where = "session:" + g.SessionID
	}
	if g.Unowned && g.Owner != "" { // a grant for a user's own device does not cover an unowned device with its id
		where = "unowned " + where
	}
	h := sha256.New()
	for _, part := range []string{
		g.Tool, g.DefinitionHash, g.ArgsDigest, where, g.Owner, g.Requester.Key(), strconv.FormatBool(g.Model), g.Rules,
	} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Covers reports whether the grant covers the call of an approval.
func (g Grant) Covers(a Approval) bool {
	binding := g.Binding()
	return binding == GrantOf(a, ScopeAlwaysTool).Binding() || binding == GrantOf(a, ScopeAlwaysArgs).Binding()
}

// ErrNoGrant is returned if a grant is unknown or belongs to another tenant.
var ErrNoGrant = Errorf(CodeNotFound, "No grant has this id, or it has expired.")

// GrantStore keeps grants.
type GrantStore interface {
	// PutGrant stores a grant for life and replaces one with the same binding. It fails with CodeBusy if the tenant has
	// MaxGrants, or one of the givers MaxGrantsOfOne.
	PutGrant(ctx context.Context, g Grant, life time.Duration) (Grant, error)

	// FindGrant returns a grant with one of the bindings. It fails with ErrNoGrant if there is none.
	FindGrant(ctx context.Context, tenant string, bindings ...string) (Grant, error)

	// Grants returns a tenant's grants in the order of their expiry.
	Grants(ctx context.Context, tenant string) ([]Grant, error)

	// RevokeGrant removes a grant that Grants returned. It fails with ErrNoGrant if it is gone, or another one with
	// its binding has replaced it.
	RevokeGrant(ctx context.Context, g Grant) error
}

// Errors for full approval stores.
var (
	ErrManyApprovals = Errorf(CodeBusy,
		"%d approvals are already waiting. Decide some first: farhand approve list.",
		MaxPending).With(DispatchedNo)
	ErrManyOfOne = Errorf(CodeBusy,
		"%d of your calls already wait for approval. Wait until some are decided.",
		MaxPendingOfOne).With(DispatchedNo)
	ErrManyGrants = Errorf(CodeBusy,
		"There are already %d grants. Revoke some first: farhand approve grants.", MaxGrants)
	ErrManyGrantsOfOne = Errorf(CodeBusy, "You, this device or its user have already given %d grants, the most of one "+
		"giver. Revoke some first: farhand approve grants.", MaxGrantsOfOne)
)
