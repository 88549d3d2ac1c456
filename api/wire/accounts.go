package wire

import (
	"github.com/farhand/farhand/registry"
)

// Health says that the process serves requests.
type Health struct {
	Status  string `json:"status" schema:"enum=ok"`
	Pod     string `json:"pod"`
	Version string `json:"version"`
}

// Ready says that new traffic can come to a pod.
type Ready struct {
	Status string `json:"status" schema:"enum=ready"`

	// What an operator should look at although the pod serves. policy_file_refused: the policy file that is there now
	// cannot be used, and the former one is in force.
	Warnings []string `json:"warnings,omitempty" schema:"enum=policy_file_refused"`
}

// Limits are the limits for the asker, and for devices.
type Limits struct {
	BodyBytes int64 `json:"body_bytes"` // of a request's body

	// The timeout of a call when neither the request nor the tool names one.
	CallTimeoutMS int64 `json:"call_timeout_ms"`

	MaxCallTimeoutMS int64 `json:"max_call_timeout_ms"` // the longest timeout that a call gets
	MaxWaitMS        int64 `json:"max_wait_ms"`         // the longest `wait_ms`

	// Event streams of one identity that may be open at once on a pod.
	Streams int `json:"streams"`

	Rates  []RateLimit  `json:"rates"`
	Device DeviceLimits `json:"device"`
}

// RateLimit is how often tools may be called. All rates that hold for a call count it.
type RateLimit struct {
	Rule string `json:"rule"` // the setting, or the rule of the policy
	Per  string `json:"per"`  // whose calls are counted together: `identity`, `device` or `tenant`

	// Globs of the tools whose calls are counted, each tool for itself. A rule may be about fewer of them, as those of
	// one security level. Absent: the calls of all tools together.
	Tools []string `json:"tools,omitempty"`

	Calls         int   `json:"calls"`
	WindowSeconds int64 `json:"window_seconds"`
}

// DeviceLimits are what the gateway takes of one device. `session_start` and `connected` have the same.
type DeviceLimits = registry.DeviceLimits

// UsageRow is a row of usage. Fields that are not grouped by are missing.
type UsageRow struct {
	Day string `json:"day,omitempty" schema:"format=date"`

	// Empty: identities that name no user. Missing if rows are not added up by users.
	User *string `json:"user,omitempty"`

	// Of identities that name no user: the credential, with its name. Missing if it has none of its own.
	Key string `json:"key,omitempty"`

	Tool string `json:"tool,omitempty"`
	registry.Usage
}

// UsageList is a page of usage, and the days that it is about.
type UsageList struct {
	From       string     `json:"from" schema:"format=date"`
	To         string     `json:"to" schema:"format=date"`
	Usage      []UsageRow `json:"usage"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// AuditLine is a line of the audit log.
type AuditLine struct {
	ID string `json:"id"`
	At Time   `json:"at"`
	registry.AuditEntry
}

// AuditPage is a page of the audit log, the newest line first.
type AuditPage struct {
	Lines      []AuditLine `json:"lines"`
	NextCursor NextCursor  `json:"next_cursor,omitempty"`
}

// The audit log's words.
type (
	// AuditAction is what was done, or not allowed.
	AuditAction = string

	// AuditOutcome: allowed: it was let through, or done. denied: a rule or a person decided against it. failed: it
	// could not be done. seen: it was looked at, and nothing was decided.
	AuditOutcome = string
)

// Key is an API key, without the key itself.
type Key struct {
	ID string `json:"id"` // names the key; it is not secret
	KeyAttributes
}

// CreatedKey is the answer to the creation of an API key.
type CreatedKey struct {
	ID  string `json:"id"`                                         // names the key; it is not secret
	Key string `json:"key" schema:"pattern=^fhk_[0-9A-Za-z]{49}$"` // the key itself, shown this once
	KeyAttributes
}

// KeyAttributes are the attributes of an API key.
type KeyAttributes struct {
	Tenant    string   `json:"tenant"`
	Name      string   `json:"name,omitempty"` // for people
	Roles     []string `json:"roles" schema:"enum=device|caller|approver|admin"`
	UserID    string   `json:"user_id,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Tools     string   `json:"tools,omitempty"`
	Context   string   `json:"context,omitempty"`
	Person    bool     `json:"person,omitempty"` // a person's program makes its calls over MCP. Absent: a model does
	CreatedAt Time     `json:"created_at"`
	CreatedBy string   `json:"created_by,omitempty"`   // the credential that made it
	ExpiresAt Time     `json:"expires_at,omitempty"`   // Absent: when it was not used for 400 days
	LastUsed  Time     `json:"last_used_at,omitempty"` // about; absent: never
}

// KeyList is a page of the API keys, the oldest first.
type KeyList struct {
	Keys       []Key      `json:"keys"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// KeyRequest is a request for an API key.
//
//schema:closed
type KeyRequest struct {
	Name  string   `json:"name,omitempty" schema:"maxLength=256"`                      // for people
	Roles []string `json:"roles,omitempty" schema:"enum=device|caller|approver|admin"` // Default: caller

	// Whose key it is. Absent: it has no user.
	UserID string `json:"user_id,omitempty" schema:"maxLength=256"`

	// The only device_id that a device with the key may have.
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// Globs over names of tools, separated by spaces. Absent: all.
	Tools string `json:"tools,omitempty" schema:"maxLength=4096"`

	// Who takes part in the conversations it opens. Default: main.
	Context string `json:"context,omitempty" schema:"enum=main|group|group sandboxed"`

	// Another tenant than the caller's: for FARHAND_TOKEN only.
	Tenant string `json:"tenant,omitempty"`

	// Whether a person's program makes its calls over MCP. Default: false, they count as a model's.
	Person bool `json:"person,omitempty"`

	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"`
	ExpiresIn int64  `json:"expires_in,omitempty" schema:"minimum=1"` // seconds; in place of expires_at
}

// Revocation: exactly one of them.
//
//schema:closed
//schema:minProperties=1
//schema:maxProperties=1
type Revocation struct {
	UserID   string `json:"user_id,omitempty" schema:"maxLength=256"`
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// As audit and listings name it, key:… or device:…, or its id.
	Credential string `json:"credential,omitempty" schema:"maxLength=256"`

	JTI string `json:"jti,omitempty" schema:"maxLength=256"` // the id of a JSON Web Token
}

// Revoked is the answer to a revocation.
type Revoked struct {
	Credentials int `json:"credentials"` // how many credentials were removed
}

// ProtectedResource is the metadata of the MCP endpoint, in the form of RFC 9728.
type ProtectedResource struct {
	Resource string   `json:"resource"` // the URL to ask the authorization server for a token for
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}
