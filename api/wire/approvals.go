package wire

import "github.com/farhand/farhand/registry"

// ApprovalRow is an approval in a list, without the arguments of its call.
type ApprovalRow struct {
	ID     ApprovalID    `json:"id"`
	CallID string        `json:"call_id" schema:"format=uuid"`
	Tool   string        `json:"tool"`
	State  ApprovalState `json:"state"`
	Reason string        `json:"reason"` // why a person is asked
	Rule   string        `json:"rule"`   // the id of the rule of the policy that demands it

	// Where the call goes. Absent for a tool of the gateway itself.
	SessionID SessionID `json:"session_id,omitempty"`

	DeviceID   string `json:"device_id,omitempty"`
	DeviceName string `json:"device_name,omitempty"`

	// The device_id of a paired device that a person may take this one for.
	LooksLike string `json:"looks_like,omitempty"`

	UserID    string    `json:"user_id,omitempty"` // whose device it is, or who asked. Absent: no user in particular
	Requester Requester `json:"requester"`

	// `async`: no caller waits, and the call starts when it is allowed.
	Mode string `json:"mode" schema:"enum=sync|async"`

	TurnID     string `json:"turn_id,omitempty" schema:"format=uuid"`
	ArgsDigest string `json:"args_digest" schema:"pattern=^[0-9a-f]{64}$"`

	// Of the tool as it is defined. The approval holds for this definition only.
	SchemaHash string `json:"schema_hash" schema:"pattern=^[0-9a-f]{64}$"`

	// Where values of arguments come from, as far as that is known.
	Arguments []ArgumentSource `json:"arguments,omitempty"`

	// Who may allow the call, by the policy. Absent: every approver but the credential that made it.
	By registry.ApproveBy `json:"by,omitempty"`

	// Who may decide, as far as that is known: users, names of keys, other ways to have the role.
	Approvers []string `json:"approvers,omitempty"`

	MayDecide bool   `json:"may_decide"` // whether the reader may allow the call now
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`           // no answer until then is a denial
	AllowedBy string `json:"allowed_by,omitempty"` // with `by: two`: the first of two persons who allow the call

	// A user, a credential or a device; two of them with `by: two`.
	DecidedBy string `json:"decided_by,omitempty"`

	DecidedAt Time                   `json:"decided_at,omitempty"`
	Scope     registry.ApprovalScope `json:"scope,omitempty"`
}

// ArgumentSource is where a value in the arguments comes from.
type ArgumentSource = registry.ArgumentSource

// Requester is who asks for a call.
type Requester struct {
	UserID     string `json:"user_id,omitempty"`
	Credential string `json:"credential,omitempty"` // what proved who asks; no secret
	Name       string `json:"name,omitempty"`       // what people call the credential
	Model      bool   `json:"model"`                // a language model asks, in their conversation
}

// ApprovalList has the open approvals, in order of expiry.
type ApprovalList struct {
	Approvals []ApprovalRow `json:"approvals"`
}

// Approval is an approval with its arguments: as sent, and as text that cannot deceive its reader.
type Approval struct {
	ApprovalRow
	Args registry.JSON `json:"args,omitzero" schema:"type=object,open"` // as they will reach the tool

	// The arguments for people: whole, and every character that is not plainly seen as its escape.
	ArgsText string `json:"args_text"`

	// What to look at twice: much to read, several lines, characters that are not seen, turn the direction of reading
	// or push others out of sight, letters outside ASCII.
	Remarks []string `json:"remarks" schema:"enum=long|multiline|hidden|foreign"`
}

// DecisionRequest is a decision of an approval.
//
//schema:closed
type DecisionRequest struct {
	Decision string `json:"decision" schema:"enum=allow-once|allow-always|deny"`

	// With `allow-always`: the tool with any arguments, or with these only.
	Scope string `json:"scope,omitempty" schema:"enum=tool|arguments,default=arguments"`

	// With `allow-always`: how long the grant lasts; default 30 days.
	ExpiresInMS int64 `json:"expires_in_ms,omitempty" schema:"minimum=1,maximum=2592000000"`
}

// Values of DecisionRequest.
const (
	DecisionOnce   = "allow-once"
	DecisionAlways = "allow-always"
	DecisionDeny   = "deny"
	ScopeTool      = "tool"
	ScopeArguments = "arguments"
)

// Decision is an approval after a decision: the first one counts.
type Decision struct {
	Approval
	Decided bool   `json:"decided"` // whether this request decided. If not, another one was faster, or the time was up
	Grant   *Grant `json:"grant,omitempty"`
}

// Grant is what "allow always" has granted.
type Grant struct {
	ID         ApprovalID `json:"id"`
	Tool       string     `json:"tool"`
	SchemaHash string     `json:"schema_hash" schema:"pattern=^[0-9a-f]{64}$"`
	ArgsDigest string     `json:"args_digest,omitempty"` // Absent: any arguments
	SessionID  SessionID  `json:"session_id,omitempty"`
	DeviceID   string     `json:"device_id,omitempty"`
	UserID     string     `json:"user_id,omitempty"`
	Requester  Requester  `json:"requester"`
	ApprovalID ApprovalID `json:"approval_id"`
	GrantedBy  string     `json:"granted_by"`
	CreatedAt  Time       `json:"created_at"`
	ExpiresAt  Time       `json:"expires_at"`
}

// GrantList has all grants.
type GrantList struct {
	Grants []Grant `json:"grants"`
}
