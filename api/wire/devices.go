package wire

import "github.com/farhand/farhand/registry"

// PairRequest is a device's request to be paired.
//
//schema:closed
type PairRequest struct {
	// What the credential is bound to. Absent: the gateway makes one.
	DeviceID string `json:"device_id,omitempty"`

	// For people.
	DeviceName string `json:"device_name,omitempty"`

	// For people.
	Platform string `json:"platform,omitempty"`

	// An Ed25519 key, 32 bytes in base64url without padding. The credential is then of no use without signatures.
	PublicKey string `json:"public_key,omitempty"`

	// Names of tools the device wants to offer.
	Tools []string `json:"tools,omitempty" schema:"maxItems=128"`
}

// PairAsked is the answer to a PairRequest.
type PairAsked struct {
	ID string `json:"id"`

	// For `/pair/status`. The device shows it to no one.
	Secret string `json:"secret"`

	// To show to a person.
	Code string `json:"code" schema:"pattern=^[2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4}$"`

	DeviceID string `json:"device_id"`

	// Seconds until the request is gone.
	ExpiresIn int `json:"expires_in"`

	// Seconds between two questions to `/pair/status`.
	Interval int `json:"interval"`
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

	// Seconds.
	ExpiresIn int `json:"expires_in"`
}

// PairingDecision is an approver's decision about a request to pair.
//
//schema:closed
type PairingDecision struct {
	// As the device shows it; case and hyphen do not matter.
	Code string `json:"code,omitempty"`

	Decision string `json:"decision,omitempty" schema:"enum=approve|reject"`

	// Whose device it becomes. Absent: the approver's.
	User string `json:"user,omitempty"`

	// For people. Absent: as the device calls itself.
	Name string `json:"name,omitempty"`

	// Names or globs of tools it may offer. Absent: those it asked for.
	Tools []string `json:"tools,omitzero" schema:"maxItems=128"`

	// A device with the same device_id that is paired already loses its credential.
	Replace bool `json:"replace,omitempty"`
}

// Pairing is a request to pair, as shown to its approver.
type Pairing struct {
	ID         string   `json:"id"`
	Status     string   `json:"status" schema:"enum=pending|rejected|approved"`
	DeviceID   string   `json:"device_id"`
	DeviceName string   `json:"device_name,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	Tools      []string `json:"tools"`

	// Of the public key, if the device has one.
	Fingerprint string `json:"key_fingerprint,omitempty"`

	// The address the request came from.
	Source string `json:"source"`

	// A device with this device_id is paired already.
	AlreadyPaired bool `json:"already_paired"`

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
	// Of its credential.
	ID string `json:"id"`

	DeviceID string `json:"device_id"`

	// The device_id of another paired device that a person may take this one for.
	LooksLike string `json:"looks_like,omitempty"`

	Name        string `json:"name,omitempty"`
	UserID      string `json:"user_id,omitempty"`
	Fingerprint string `json:"key_fingerprint,omitempty"`

	// Names and globs that were approved in advance.
	Tools []string `json:"tools"`

	CreatedAt Time `json:"created_at"`

	// The credential that approved it.
	CreatedBy string `json:"created_by"`

	LastUsed  Time `json:"last_used,omitempty"`
	ExpiresAt Time `json:"expires_at,omitempty"`
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

	// As they were defined.
	Approved []ApprovedTool `json:"approved"`

	Rejected []string      `json:"rejected"`
	Waiting  []WaitingTool `json:"waiting"`
}

// ApprovedTool is a tool of a device and the definition of it that was approved.
type ApprovedTool = registry.ApprovedTool

// WaitingTool is a tool that waits for approval.
type WaitingTool struct {
	WaitingDefinition
	Hash string `json:"hash"`

	// A tool of this name is approved, and was defined in another way.
	ApprovedHash string `json:"approved_hash,omitempty"`

	Before *WaitingDefinition `json:"before,omitempty"`

	// The fields that are different.
	Changed []string `json:"changed,omitempty"`
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

	// Names of tools the device must not offer.
	Reject []string `json:"reject,omitempty"`
}
