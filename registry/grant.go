package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

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
