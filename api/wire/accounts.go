package wire

import "github.com/farhand/farhand/registry"

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
