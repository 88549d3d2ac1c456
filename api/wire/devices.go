package wire

import "github.com/farhand/farhand/registry"

// PairRequest is a device's request to be paired.
//
//schema:closed
type PairRequest struct {
	DeviceID   string `json:"device_id,omitempty"`   // what the credential is bound to. Absent: the gateway makes one
	DeviceName string `json:"device_name,omitempty"` // for people
	Platform   string `json:"platform,omitempty"`    // for people

	// An Ed25519 key, 32 bytes in base64url without padding. The credential is then of no use without signatures.
	PublicKey string `json:"public_key,omitempty"`

	Tools []string `json:"tools,omitempty" schema:"maxItems=128"` // names of tools the device wants to offer
}

// PairAsked is the answer to a PairRequest.
type PairAsked struct {
	ID string `json:"id"`

	// For `/pair/status`. The device shows it to no one.
	Secret string `json:"secret"`

	Code      string `json:"code" schema:"pattern=^[2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4}$"` // to show to a person
	DeviceID  string `json:"device_id"`
	ExpiresIn int    `json:"expires_in"` // seconds until the request is gone
	Interval  int    `json:"interval"`   // seconds between two questions to `/pair/status`
}

// PairSecret is the question whether a device is paired.
//
//schema:closed
type PairSecret struct {
	Secret string `json:"secret" schema:"minLength=1"`
}

// PairStatus is whether a device is paired.
type PairStatus struct {
	Status   string `json:"status" schema:"enum=pending|rejected|approved"`
	DeviceID string `json:"device_id"`
	Name     string `json:"name,omitempty"`

	// With `approved`: the bearer token of the device. It is not given out again.
	Credential string `json:"credential,omitempty"`
}

// Challenge is a nonce for a paired device to sign.
type Challenge struct {
	// What is signed is the text `farhand-device-v1`, a line feed, this, a line feed, and the device_id.
	Nonce string `json:"nonce"`

	ExpiresIn int `json:"expires_in"` // seconds
}

// PairingDecision is an approver's decision about a request to pair.
//
//schema:closed
type PairingDecision struct {
	Code     string `json:"code,omitempty"` // as the device shows it; case and hyphen do not matter
	Decision string `json:"decision,omitempty" schema:"enum=approve|reject"`
	User     string `json:"user,omitempty"` // whose device it becomes. Absent: the approver's
	Name     string `json:"name,omitempty"` // for people. Absent: as the device calls itself

	// Names or globs of tools it may offer. Absent: those it asked for.
	Tools []string `json:"tools,omitzero" schema:"maxItems=128"`

	// A device with the same device_id that is paired already loses its credential.
	Replace bool `json:"replace,omitempty"`
}

// Pairing is a request to pair, as shown to its approver.
type Pairing struct {
	ID            string   `json:"id"`
	Status        string   `json:"status" schema:"enum=pending|rejected|approved"`
	DeviceID      string   `json:"device_id"`
	DeviceName    string   `json:"device_name,omitempty"`
	Platform      string   `json:"platform,omitempty"`
	Tools         []string `json:"tools"`
	Fingerprint   string   `json:"key_fingerprint,omitempty"` // of the public key, if the device has one
	Source        string   `json:"source"`                    // the address the request came from
	AlreadyPaired bool     `json:"already_paired"`            // a device with this device_id is paired already

	// The device_id of another device, paired or waiting, that a person may take this one for.
	LooksLike string `json:"looks_like,omitempty"`

	// What to look at twice in the device_id: characters outside ASCII; spaces or signs that ids seldom have.
	Remarks []string `json:"remarks,omitempty" schema:"enum=foreign|unusual"`

	CreatedAt Time   `json:"created_at"`
	ExpiresAt Time   `json:"expires_at"`
	UserID    string `json:"user_id,omitempty"`
}

// PairingList has the requests that can be decided without their codes.
type PairingList struct {
	Pairings []Pairing `json:"pairings"`
}

// DeviceRow is a paired device.
type DeviceRow struct {
	ID       string `json:"id"` // of its credential
	DeviceID string `json:"device_id"`

	// The device_id of another paired device that a person may take this one for.
	LooksLike string `json:"looks_like,omitempty"`

	Name        string   `json:"name,omitempty"`
	UserID      string   `json:"user_id,omitempty"`
	Fingerprint string   `json:"key_fingerprint,omitempty"`
	Tools       []string `json:"tools"` // names and globs that were approved in advance
	CreatedAt   Time     `json:"created_at"`
	CreatedBy   string   `json:"created_by"` // the credential that approved it
	LastUsed    Time     `json:"last_used,omitempty"`
	ExpiresAt   Time     `json:"expires_at,omitempty"`
	Presence
}

// DeviceList is a page of the paired devices.
type DeviceList struct {
	Devices    []DeviceRow `json:"devices"`
	NextCursor NextCursor  `json:"next_cursor,omitempty"`
}

// Device is a paired device with its tools.
type Device struct {
	DeviceRow
	Approved []ApprovedTool `json:"approved"` // as they were defined
	Rejected []string       `json:"rejected"`
	Waiting  []WaitingTool  `json:"waiting"`
}

// ApprovedTool is a tool of a device and the definition of it that was approved.
type ApprovedTool = registry.ApprovedTool

// WaitingTool is a tool that waits for approval.
type WaitingTool struct {
	WaitingDefinition
	Hash string `json:"hash"`

	// A tool of this name is approved, and was defined in another way.
	ApprovedHash string `json:"approved_hash,omitempty"`

	Before  *WaitingDefinition `json:"before,omitempty"`
	Changed []string           `json:"changed,omitempty"` // the fields that are different
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
}

// ToolDecision is a decision about tools of a paired device.
//
//schema:closed
type ToolDecision struct {
	// Tools that wait, each with the hash of the definition that was looked at.
	Approve []ApprovedTool `json:"approve,omitempty"`

	Reject []string `json:"reject,omitempty"` // names of tools the device must not offer
}
