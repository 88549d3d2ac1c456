package wire

import (
	"github.com/farhand/farhand/registry"
)

// ApprovalRow is an approval in a list, without the arguments of its call.
type ApprovalRow struct {
	ID     ApprovalID    `json:"id"`
	CallID string        `json:"call_id" schema:"format=uuid"`
	Tool   string        `json:"tool"`
	State  ApprovalState `json:"state"`
	Reason string        `json:"reason"` // why the call needs approval
	Rule   string        `json:"rule"`   // the id of the policy rule that requires it

	// The target session. Absent for built-in tools.
	SessionID SessionID `json:"session_id,omitempty"`

	DeviceID   string `json:"device_id,omitempty"`
	DeviceName string `json:"device_name,omitempty"`

	// The devices of a group call, instead of the three members above. The approval covers one call of each.
	Devices []ApprovedDevice `json:"devices,omitempty"`

	// The device_id of a paired device that looks similar.
	LooksLike string `json:"looks_like,omitempty"`

	UserID    string    `json:"user_id,omitempty"` // the device's user, or the requester. Absent: no user
	Requester Requester `json:"requester"`

	// `async`: no caller waits, and the call starts when it is allowed.
	Mode string `json:"mode" schema:"enum=sync|async"`

	TurnID     string `json:"turn_id,omitempty" schema:"format=uuid"`
	ArgsDigest string `json:"args_digest" schema:"pattern=^[0-9a-f]{64}$"`

	// The digest of the tool's definition. The approval is valid only for this definition.
	SchemaHash string `json:"schema_hash" schema:"pattern=^[0-9a-f]{64}$"`

	// What the tool declares about its calls.
	Effects *ToolEffects `json:"effects,omitempty"`

	// Where argument values come from, if known.
	Arguments []ArgumentSource `json:"arguments,omitempty"`

	// Who may allow the call by the policy. Absent: every approver except the calling credential.
	By registry.ApproveBy `json:"by,omitempty"`

	// Who may decide, if known: users, names of keys, other holders of the role.
	Approvers []string `json:"approvers,omitempty"`

	MayDecide bool   `json:"may_decide"` // whether the reader may allow the call now
	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`           // without a decision until then, the call is denied
	AllowedBy string `json:"allowed_by,omitempty"` // with `by: two`: the first person who allowed the call

	// A user, a credential or a device; two of them with `by: two`.
	DecidedBy string `json:"decided_by,omitempty"`

	DecidedAt Time                   `json:"decided_at,omitempty"`
	Scope     registry.ApprovalScope `json:"scope,omitempty"`
	Comment   string                 `json:"comment,omitempty"` // of the person who decided
}

// ApprovedDevice is one of the devices that an approval covers.
type ApprovedDevice = registry.ApprovedDevice

// ArgumentSource is where a value in the arguments comes from.
type ArgumentSource = registry.ArgumentSource

// Requester is the caller that needs approval.
type Requester struct {
	UserID     string `json:"user_id,omitempty"`
	Credential string `json:"credential,omitempty"` // the caller's credential; not secret
	Name       string `json:"name,omitempty"`       // the display name of the credential
	Model      bool   `json:"model"`                // a language model calls, in the user's conversation
}

// ApprovalList has the open approvals, in order of expiry.
type ApprovalList struct {
	Approvals []ApprovalRow `json:"approvals"`
}

// Approval is an approval with its arguments, as sent and as unambiguous text.
type Approval struct {
	ApprovalRow
	Args registry.JSON `json:"args,omitzero" schema:"type=object,open"` // as they will reach the tool

	// The complete arguments for people. Invisible and ambiguous characters are escaped.
	ArgsText string `json:"args_text"`

	// Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters
	// outside ASCII.
	Remarks []string `json:"remarks" schema:"enum=long|multiline|hidden|foreign"`
}

// DecisionRequest is a decision on an approval.
//
//schema:closed
type DecisionRequest struct {
	Decision string `json:"decision" schema:"enum=allow-once|allow-always|deny"`

	// With `allow-always`: the tool with any arguments, or only with these.
	Scope string `json:"scope,omitempty" schema:"enum=tool|arguments,default=arguments"`

	// With `allow-always`: how long the grant lasts; default 30 days.
	ExpiresInMS int64 `json:"expires_in_ms,omitempty" schema:"minimum=1,maximum=2592000000"`

	// One line for the audit log and, with `deny`, for the caller and the model.
	Comment string `json:"comment,omitempty" schema:"maxLength=500"`
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
	// Whether this request decided. If not, another request was first, or the approval had expired.
	Decided bool   `json:"decided"`
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

// PairRequest is a device's request to be paired.
//
//schema:closed
type PairRequest struct {
	DeviceID   string `json:"device_id,omitempty"`   // the credential is bound to it. Absent: the gateway generates one
	DeviceName string `json:"device_name,omitempty"` // for people
	Platform   string `json:"platform,omitempty"`    // for people

	// An Ed25519 key, 32 bytes in base64url without padding. The credential then works only with signatures.
	PublicKey string `json:"public_key,omitempty"`

	Tools []string `json:"tools,omitempty" schema:"maxItems=128"` // names of tools the device wants to offer
}

// PairAsked is the answer to a PairRequest.
type PairAsked struct {
	ID string `json:"id"`

	// For `/pair/status`. The device must keep it secret.
	Secret string `json:"secret"`

	Code      string `json:"code" schema:"pattern=^[2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4}$"` // to display to a person
	DeviceID  string `json:"device_id"`
	ExpiresIn int    `json:"expires_in"` // seconds until the request expires
	Interval  int    `json:"interval"`   // seconds between requests to `/pair/status`
}

// PairSecret is a request for the status of a pairing request.
//
//schema:closed
type PairSecret struct {
	Secret string `json:"secret" schema:"minLength=1"`
}

// PairStatus is the status of a pairing request.
type PairStatus struct {
	Status   string `json:"status" schema:"enum=pending|rejected|approved"`
	DeviceID string `json:"device_id"`
	Name     string `json:"name,omitempty"`

	// With `approved`: the device's bearer token. It is returned only once.
	Credential string `json:"credential,omitempty"`
}

// Challenge is a nonce for a paired device to sign.
type Challenge struct {
	// The text to sign is `farhand-device-v1`, a line feed, this nonce, a line feed, and the device_id.
	Nonce string `json:"nonce"`

	ExpiresIn int `json:"expires_in"` // seconds
}

// PairingDecision is an approver's decision on a pairing request.
//
//schema:closed
type PairingDecision struct {
	Code     string `json:"code,omitempty"` // as the device displays it; case and hyphens are ignored
	Decision string `json:"decision,omitempty" schema:"enum=approve|reject"`
	User     string `json:"user,omitempty"` // the device's user. Absent: the approver
	Name     string `json:"name,omitempty"` // for people. Absent: the device's own name

	// Names or globs of the tools that it may offer. Absent: the requested ones.
	Tools []string `json:"tools,omitzero" schema:"maxItems=128"`

	// Revokes the credential of an already paired device with the same device_id.
	Replace bool `json:"replace,omitempty"`
}

// Pairing is a pairing request, as shown to its approver.
type Pairing struct {
	ID            string   `json:"id"`
	Status        string   `json:"status" schema:"enum=pending|rejected|approved"`
	DeviceID      string   `json:"device_id"`
	DeviceName    string   `json:"device_name,omitempty"`
	Platform      string   `json:"platform,omitempty"`
	Client        string   `json:"client,omitempty"` // program and version, of an OpenClaw node
	Tools         []string `json:"tools"`
	Fingerprint   string   `json:"key_fingerprint,omitempty"` // of the public key, if the device has one
	Source        string   `json:"source"`                    // the address the request came from
	AlreadyPaired bool     `json:"already_paired"`            // a device with this device_id is already paired

	// The device_id of another device, paired or waiting, that looks similar.
	LooksLike string `json:"looks_like,omitempty"`

	// Warnings about the device_id: characters outside ASCII, or spaces and signs that are unusual in ids.
	Remarks []string `json:"remarks,omitempty" schema:"enum=foreign|unusual"`

	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	UserID    string `json:"user_id,omitempty"`
}

// SetupRequest is a request for a setup code.
//
//schema:closed
type SetupRequest struct {
	User string `json:"user,omitempty"` // the node's user. Absent: the approver
	Name string `json:"name,omitempty"` // for people. Absent: the node's own name

	// Names or globs of the tools that it may offer. Absent: those that it declares when it pairs.
	Tools []string `json:"tools,omitzero" schema:"maxItems=128"`

	// Where the node connects: ws:// or wss://, with the path. Absent: the gateway's public URL or, if it has none, the
	// address of this request.
	URL string `json:"url,omitempty"`
}

// ImportRequest is a request to pair nodes of an OpenClaw installation.
//
//schema:closed
type ImportRequest struct {
	User  string         `json:"user,omitempty"` // owner of the nodes. Absent: none in particular
	Nodes []ImportedNode `json:"nodes" schema:"minItems=1,maxItems=50"`
}

// ImportedNode is a node that is paired with an OpenClaw gateway.
//
//schema:closed
type ImportedNode struct {
	PublicKey string `json:"public_key"` // 32 bytes in base64url without padding

	// The SHA-256 of the node's token. The node connects with the token, and gets a credential of Farhand in its place.
	TokenDigest string `json:"token_sha256" schema:"pattern=^[0-9a-f]{64}$"`

	Name  string   `json:"name,omitempty"`                       // for people
	Tools []string `json:"tools,omitzero" schema:"maxItems=128"` // names or globs of tools that it may offer
}

// ImportReport says what became of imported nodes.
type ImportReport struct {
	Nodes []ImportedState `json:"nodes"` // in the order of the request
}

// ImportedState is what became of an imported node.
type ImportedState struct {
	DeviceID string `json:"device_id"`
	Status   string `json:"status" schema:"enum=imported|exists|refused"`
	Reason   string `json:"reason,omitempty"` // with `refused`
}

// SetupCode pairs one OpenClaw node without a question to an approver. It is returned only once.
type SetupCode struct {
	Code      string `json:"setup_code"` // to type in, or to scan as a QR code
	PairURL   string `json:"pair_url"`   // the same as a link, `oc-pair://` and the code
	URL       string `json:"url"`        // where the node connects
	ExpiresAt Time   `json:"expires_at"`
}

// PairingList has the requests that can be decided without their codes.
type PairingList struct {
	Pairings []Pairing `json:"pairings"`
}

// DeviceRow is a paired device.
type DeviceRow struct {
	ID       string `json:"id"` // of its credential
	DeviceID string `json:"device_id"`

	// The device_id of another paired device that looks similar.
	LooksLike string `json:"looks_like,omitempty"`

	Name        string   `json:"name,omitempty"`
	UserID      string   `json:"user_id,omitempty"`
	Fingerprint string   `json:"key_fingerprint,omitempty"`
	Tools       []string `json:"tools"` // names and globs that were approved in advance

	// How many of its tools wait for approval; absent: none.
	WaitingTools int `json:"waiting_tools,omitempty" schema:"minimum=1"`

	CreatedAt Time   `json:"created_at"`
	CreatedBy string `json:"created_by"` // the credential that approved it
	LastUsed  Time   `json:"last_used,omitempty"`
	ExpiresAt Time   `json:"expires_at,omitempty"`

	// The secret before the last rotation, while it works.
	Former *FormerSecret `json:"former_secret,omitempty"`

	Node  bool `json:"node,omitempty"`              // it is an OpenClaw node
	Renew bool `json:"renews_credential,omitempty"` // it gets a new credential when it next connects

	Presence

	// Absent unless the request has the parameter `presence`, and for devices that are neither: they never connected,
	// or not for long.
	PresenceNow string `json:"presence,omitempty" schema:"enum=connected|sleeping"`

	LastSeen string `json:"last_seen,omitempty" schema:"format=date-time"` // of a sleeping device
}

// DeviceList is a page of the paired devices.
type DeviceList struct {
	Devices    []DeviceRow `json:"devices"`
	NextCursor NextCursor  `json:"next_cursor,omitempty"`
}

// Device is a paired device with its tools.
type Device struct {
	DeviceRow
	Approved []ApprovedTool `json:"approved"` // with their approved definitions
	Rejected []string       `json:"rejected"`
	Waiting  []WaitingTool  `json:"waiting"`
}

// ApprovedTool is a tool of a device with its approved definition.
type ApprovedTool = registry.ApprovedTool

// WaitingTool is a tool that waits for approval.
type WaitingTool struct {
	WaitingDefinition
	Hash string `json:"hash"`

	// A tool of this name is approved with another definition.
	ApprovedHash string `json:"approved_hash,omitempty"`

	Before  *WaitingDefinition `json:"before,omitempty"`
	Changed []string           `json:"changed,omitempty"` // the changed fields
}

// WaitingDefinition is a definition of a device's tool.
type WaitingDefinition struct {
	Name          string                 `json:"name"`
	Description   string                 `json:"description"`
	Parameters    Parameters             `json:"parameters"`
	TimeoutMS     int64                  `json:"timeout_ms,omitempty"`
	Annotations   *Annotations           `json:"annotations,omitempty"`
	SecurityLevel registry.SecurityLevel `json:"security_level,omitempty"`
	OutputSchema  OutputSchema           `json:"output_schema,omitempty"`
	Effects       *ToolEffects           `json:"effects,omitempty"`
	Tags          ToolTags               `json:"tags,omitempty"`
}

// ToolDecision is a decision on tools of a paired device.
//
//schema:closed
type ToolDecision struct {
	// Waiting tools, each with the hash of the reviewed definition.
	Approve []ApprovedTool `json:"approve,omitempty"`

	Reject []string `json:"reject,omitempty"` // names of tools the device must not offer
}
