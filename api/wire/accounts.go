package wire

import "github.com/farhand/farhand/registry"

// Index names what a gateway serves. Paths are of the same origin.
type Index struct {
	Name          string `json:"name" schema:"enum=farhand"`
	Version       string `json:"version"`
	OpenAPI       string `json:"openapi"`           // every route of the API
	MCP           string `json:"mcp"`               // the endpoint of MCP clients
	Health        string `json:"health"`            // whether the process serves requests
	Ready         string `json:"ready"`             // whether the pod accepts new traffic
	Documentation string `json:"documentation"`     // for people; a URL
	Console       string `json:"console,omitempty"` // for people; absent: this gateway has none
}

// Health says that the process serves requests.
type Health struct {
	Status  string `json:"status" schema:"enum=ok"`
	Pod     string `json:"pod"`
	Version string `json:"version"`
}

// Ready says that new traffic can come to a pod.
type Ready struct {
	Status string `json:"status" schema:"enum=ready"`

	// Warnings for the operator. The pod still serves. policy_file_refused: the current policy file is invalid, and the
	// previous one is in force; model_prices_refused says the same of the file of model prices. certificate_refused:
	// the current files of the certificate cannot be used, and an earlier certificate is in use.
	Warnings []string `json:"warnings,omitempty" schema:"enum=policy_file_refused|model_prices_refused|certificate_refused"`
}

// Limits are the limits of the caller and of devices.
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

	// What may be spent on a day. Absent: no budget applies to the caller.
	Budgets []BudgetState `json:"budgets,omitempty"`
}

// Me is the identity of the caller, and what the gateway is set up for.
type Me struct {
	Tenant string   `json:"tenant"`
	UserID string   `json:"user_id,omitempty"` // absent: the credential has no user
	Name   string   `json:"name,omitempty"`    // of the credential, for people
	Roles  []string `json:"roles" schema:"enum=device|caller|approver|admin|operator"`

	Chat    bool   `json:"chat"`                                // whether a language model is configured
	Pairing string `json:"pairing" schema:"enum=code|open|off"` // which devices may request pairing
}

// SignIn is how people sign in at the console.
type SignIn struct {
	OIDC *OIDC `json:"oidc,omitempty"` // absent: with a key or token only
}

// OIDC is what the console needs to sign in with an identity provider (OpenID Connect).
type OIDC struct {
	ClientID string       `json:"client_id"`
	Scope    string       `json:"scope"`
	Token    string       `json:"token" schema:"enum=access_token|id_token"` // which one the gateway accepts
	Provider OIDCProvider `json:"provider"`
}

// The tokens that a console may use.
const (
	TokenAccess = "access_token"
	TokenID     = "id_token"
)

// OIDCProvider is what an identity provider says about itself, under the names of OpenID Connect Discovery.
type OIDCProvider struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint,omitempty"`
	ResponseModes         []string `json:"response_modes_supported,omitempty"`
	Algorithms            []string `json:"id_token_signing_alg_values_supported,omitempty"`
	SendsIssuer           bool     `json:"authorization_response_iss_parameter_supported,omitempty"`
}

// RateLimit is how often tools may be called. A call counts for all rates that apply to it.
type RateLimit struct {
	Rule string `json:"rule"` // the setting, or the rule of the policy
	Per  string `json:"per"`  // what calls are counted for: `identity`, `device` or `tenant`

	// Globs of tools; each tool is counted separately. A rule may cover fewer of them, such as one security level.
	// Absent: the calls of all tools are counted together.
	Tools []string `json:"tools,omitempty"`

	Calls         int   `json:"calls"`
	WindowSeconds int64 `json:"window_seconds"`
}

// DeviceLimits are the limits of one device. The frames `session_start` and `connected` have the same limits.
type DeviceLimits = registry.DeviceLimits

// UsageRow is a row of usage. Fields that rows are not grouped by are absent.
type UsageRow struct {
	Day string `json:"day,omitempty" schema:"format=date"`

	// Empty: identities without a user. Absent if rows are not grouped by user.
	User *string `json:"user,omitempty"`

	// For identities without a user: the credential's name. Absent if it has none.
	Key string `json:"key,omitempty"`

	Tool string `json:"tool,omitempty"`
	registry.Usage
}

// UsageList is a page of usage, and its days.
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

// Values of the audit log.
type (
	// AuditAction is the action that was done or denied.
	AuditAction = string

	// AuditOutcome is the outcome of an action. allowed: it was permitted, or done. denied: a rule or a person denied
	// it. failed: it could not be done. seen: it was viewed without a decision.
	AuditOutcome = string
)

// Key is an API key, without its secret.
type Key struct {
	ID string `json:"id"` // the id of the key; not secret
	KeyAttributes
}

// CreatedKey is a new API key.
type CreatedKey struct {
	ID  string `json:"id"`                                         // the id of the key; not secret
	Key string `json:"key" schema:"pattern=^fhk_[0-9A-Za-z]{49}$"` // the secret key, returned only once
	KeyAttributes
}

// KeyAttributes are the attributes of an API key.
type KeyAttributes struct {
	Tenant    string   `json:"tenant"`
	Name      string   `json:"name,omitempty"` // for people
	Roles     []string `json:"roles" schema:"enum=device|caller|approver|admin|operator"`
	UserID    string   `json:"user_id,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Tools     string   `json:"tools,omitempty"`
	Context   string   `json:"context,omitempty"`
	Person    bool     `json:"person,omitempty"` // its MCP calls are made by a person's program. Absent: by a model
	CreatedAt Time     `json:"created_at"`
	CreatedBy string   `json:"created_by,omitempty"`   // the credential that created it
	ExpiresAt Time     `json:"expires_at,omitempty"`   // Absent: after 400 days without use
	LastUsed  Time     `json:"last_used_at,omitempty"` // of the current secret, approximate; absent: never

	// The secret before the last rotation, while it works.
	Former *FormerSecret `json:"former_secret,omitempty"`
}

// FormerSecret is the secret of a credential before its last rotation.
type FormerSecret struct {
	ExpiresAt Time `json:"expires_at"`
	LastUsed  Time `json:"last_used_at,omitempty"` // approximate. Absent: never
}

// Receipt says what of a person was erased. It does not name the person.
type Receipt struct {
	ID string `json:"id"`

	// The first 16 hexadecimal digits of the SHA-256 of `id`, the tenant and the user, separated by line feeds.
	Subject string `json:"subject" schema:"pattern=^[0-9a-f]{16}$"`

	At     Time           `json:"at"`
	Erased map[string]int `json:"erased"` // numbers by kind
	Kept   []Kept         `json:"kept"`   // what still names the person
}

// Kept is what an erasure keeps.
type Kept struct {
	What  string `json:"what"`
	Until Time   `json:"until"` // at the latest
}

// RotateRequest is a request for a new secret of a credential.
//
//schema:closed
type RotateRequest struct {
	// Seconds for which the former secret still works; 0: not at all. Default: a day; for a device that rotates its own
	// credential, a week. An OpenClaw node gets its new secret when it next connects, and the former one ends when the
	// node has used that, or a day later. With 0, the node's connection ends now, and the former secret in 10 minutes.
	Overlap int64 `json:"overlap,omitempty" schema:"minimum=0,maximum=7776000"`
}

// RotatedDevice is the new credential of a paired device.
type RotatedDevice struct {
	ID       string `json:"id"`
	DeviceID string `json:"device_id"`

	// The bearer token, returned only once. Absent with `on_next_connection`.
	Credential string `json:"credential,omitempty" schema:"pattern=^fhd_[0-9A-Za-z]{49}$"`

	// The device is an OpenClaw node: it gets the new credential itself, when it next connects.
	OnNextConnection bool `json:"on_next_connection,omitempty"`

	Former *FormerSecret `json:"former_secret,omitempty"`
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
	Name  string   `json:"name,omitempty" schema:"maxLength=256"`                               // for people
	Roles []string `json:"roles,omitempty" schema:"enum=device|caller|approver|admin|operator"` // Default: caller

	// The user of the key. Absent: it has no user.
	UserID string `json:"user_id,omitempty" schema:"maxLength=256"`

	// The only device_id that a device may use with the key.
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// Globs of tool names, separated by spaces. Absent: all tools.
	Tools string `json:"tools,omitempty" schema:"maxLength=4096"`

	// The participants of conversations that it opens. Default: main.
	Context string `json:"context,omitempty" schema:"enum=main|group|group sandboxed"`

	// A tenant other than the caller's: only with FARHAND_TOKEN.
	Tenant string `json:"tenant,omitempty"`

	// Whether its MCP calls are made by a person's program. Default: false: they count as a model's.
	Person bool `json:"person,omitempty"`

	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"`
	ExpiresIn int64  `json:"expires_in,omitempty" schema:"minimum=1"` // seconds; instead of expires_at
}

// Revocation has exactly one member.
//
//schema:closed
//schema:minProperties=1
//schema:maxProperties=1
type Revocation struct {
	UserID   string `json:"user_id,omitempty" schema:"maxLength=256"`
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// As in the audit log and in lists, key:… or device:…, or its id.
	Credential string `json:"credential,omitempty" schema:"maxLength=256"`

	JTI string `json:"jti,omitempty" schema:"maxLength=256"` // the id of a JSON Web Token
}

// Revoked is the answer to a revocation.
type Revoked struct {
	Credentials int `json:"credentials"` // number of removed credentials
}

// ProtectedResource is the metadata of the MCP endpoint, in the form of RFC 9728.
type ProtectedResource struct {
	Resource string   `json:"resource"` // the URL to request a token for at the authorization server
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// Tenant is a tenant in numbers, for fleet operators. It has nothing of the tenant's content.
type Tenant struct {
	Tenant string `json:"tenant"`
	Since  Time   `json:"since"` // when it was first listed

	// Whether a credential of it was ever used. If not, an operator may create its first key.
	Used bool `json:"used"`

	Devices int64          `json:"devices"` // connected, approximately
	Today   registry.Spent `json:"today"`   // since midnight UTC, a few seconds late
	Budget  DayBudget      `json:"budget"`

	BudgetBy string `json:"budget_by,omitempty"` // the credential that set the budget. Absent: it was never set
	BudgetAt Time   `json:"budget_at,omitempty"`
}

// DayBudget is what may be spent on a day, from midnight to midnight UTC, on all pods together. Absent amounts, and 0:
// no limit.
//
//schema:closed
type DayBudget struct {
	Tenant   registry.Spent `json:"tenant,omitzero"`   // by the whole tenant
	Identity registry.Spent `json:"identity,omitzero"` // by each of its identities: a user, or a credential without one

	// The share of a limit, in percent, from which the gateway warns. Default: 80
	WarnPercent int64 `json:"warn_percent,omitempty"`
}

// TenantList is a page of the tenants, by name.
type TenantList struct {
	Tenants    []Tenant   `json:"tenants"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// TenantDetails is a tenant with what it spent on the last days.
type TenantDetails struct {
	Tenant
	Days []TenantDay `json:"days"` // the latest first; without days on which nothing was spent
}

// TenantDay is what a tenant spent on a day.
type TenantDay struct {
	Day   string         `json:"day"`
	Spent registry.Spent `json:"spent"`
}

// FirstKeyRequest is a request for the first key of a tenant, with the role admin.
//
//schema:closed
type FirstKeyRequest struct {
	Name      string `json:"name,omitempty" schema:"maxLength=256"` // for people
	ExpiresIn int64  `json:"expires_in,omitempty"`                  // seconds. Absent: it ends after 400 days without use
}

// BudgetState is a budget that applies to the caller, and what is spent of it today.
type BudgetState struct {
	Per     string         `json:"per" schema:"enum=tenant|identity"`
	Limits  registry.Spent `json:"limits"`
	Spent   registry.Spent `json:"spent"`
	ResetIn int64          `json:"reset_in_seconds"` // until it begins anew
}
