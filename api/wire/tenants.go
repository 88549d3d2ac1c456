package wire

import "github.com/farhand/farhand/registry"

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
