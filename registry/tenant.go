package registry

import (
	"context"
	"time"
)

// Spent is what calls and models cost: an addition to a sum, a sum, or the limits of a budget.
type Spent struct {
	Calls  int64 `json:"calls,omitempty"`  // admitted
	Bytes  int64 `json:"bytes,omitempty"`  // of arguments and outputs
	Tokens int64 `json:"tokens,omitempty"` // of models, input and output

	// Money for models, in millionths of the unit of currency.
	Micros int64 `json:"cost_micros,omitempty"`
}

// SpentKinds are the names of the amounts, in the order of Spent.Amounts.
var SpentKinds = [...]string{"calls", "bytes", "tokens", "money"}

// maxSpent is the largest amount: Redis and JSON count exactly up to 2^53.
const maxSpent = 1 << 53

// Amounts returns the amounts in the order of SpentKinds.
func (s Spent) Amounts() [len(SpentKinds)]int64 {
	return [...]int64{s.Calls, s.Bytes, s.Tokens, s.Micros}
}

// SpentOf is the inverse of Spent.Amounts.
func SpentOf(amounts [len(SpentKinds)]int64) Spent {
	return Spent{Calls: amounts[0], Bytes: amounts[1], Tokens: amounts[2], Micros: amounts[3]}
}

// Plus returns the sum. Each amount stays within what every store counts exactly.
func (s Spent) Plus(o Spent) Spent {
	sums, more := s.Amounts(), o.Amounts()
	for i := range sums {
		sums[i] = min(max(sums[i]+min(max(more[i], -maxSpent), maxSpent), 0), maxSpent)
	}
	return SpentOf(sums)
}

// Charge adds to one sum of a tenant's day.
type Charge struct {
	Identity string // of an owner of quotas; empty: the sum of the tenant
	Spent

	MaxCalls int64 // with TenantCharge.Take: the call is not taken if the sum then exceeds it; zero: no limit
}

// TenantCharge adds to the sums of a tenant's day. The sums of identities are capped, as usage
// is (Limits.UsageRows): without room for a new one, an identity counts in a sum that all further ones share.
type TenantCharge struct {
	Tenant  string
	Charges []Charge
	Take    bool // also count a call in all charges, or in none if one of them has reached its MaxCalls
}

// Charged is the outcome of a TenantCharge.
type Charged struct {
	Sums  []Spent       // of the charges, in order
	Full  bool          // the call was not taken
	Left  time.Duration // until the sums begin anew, at midnight UTC by the store's clock
	Day   string        // as UsageDay
	Error error         // nothing else is set; the charges may have been added
}

// SpentDay names a sum of a tenant.
type SpentDay struct{ Tenant, Day string }

// SpendingStore adds up what tenants and their identities spend on the current day, for the whole fleet.
type SpendingStore interface {
	// AddSpent makes the charges of tenants, each atomically, in one round trip per node of the store.
	AddSpent(ctx context.Context, charges ...TenantCharge) []Charged

	// ReadSpent returns the sums of tenants, in order. A sum is kept as long as usage (Limits.UsageTTL).
	ReadSpent(ctx context.Context, days ...SpentDay) ([]Spent, error)
}

// SpenderOther is the sum of the identities without one of their own.
const SpenderOther = "*"

// DayBudget limits what a tenant spends on a day (UTC), and what each of its identities spends. Zero amounts: no limit.
type DayBudget struct {
	Tenant   Spent `json:"tenant,omitzero"`
	Identity Spent `json:"identity,omitzero"` // each of them

	// From this share of a limit on, the gateway warns. Zero: DefaultWarnPercent.
	WarnPercent int64 `json:"warn_percent,omitempty"`
}

// DefaultWarnPercent is the share of a limit at which the gateway warns.
const DefaultWarnPercent = 80

// Validate returns an error for a budget with amounts that cannot be counted.
func (b DayBudget) Validate() error {
	for _, limits := range []Spent{b.Tenant, b.Identity} {
		for i, limit := range limits.Amounts() {
			if limit < 0 || limit > maxSpent {
				return Errorf(CodeInvalidRequest, "The limit of %s must be from 0 to %d.",
					SpentKinds[i], int64(maxSpent))
			}
		}
	}
	if b.WarnPercent < 0 || b.WarnPercent > 100 {
		return Errorf(CodeInvalidRequest, "warn_percent must be from 1 to 100.")
	}
	return nil
}

// Tenant is what the store knows of a tenant as a whole.
type Tenant struct {
	Name   string    `json:"-"`
	Since  time.Time `json:"-"`               // when the store first listed it
	Used   bool      `json:"used,omitempty"`  // an identity of it has been authenticated
	Budget DayBudget `json:"budget,omitzero"` // what it may spend
	By     string    `json:"by,omitempty"`    // the credential that set the budget last
	SetAt  time.Time `json:"set_at,omitzero"` // when
}

// Limits of the list of tenants.
const (
	MaxTenants    = 100_000        // on the list
	MaxTenantPage = 1000           // on a page
	TenantIdle    = CredentialIdle // how long an unused tenant, with its budget, stays on the list
)

// ErrNoTenant is the error for a tenant that is not on the list.
var ErrNoTenant = Errorf(CodeNotFound, "There is no such tenant. A tenant is listed when its first credential is used.")

// TenantStore lists the tenants of the fleet and keeps their budgets. Only verified credentials and fleet operators
// bring a tenant on the list.
type TenantStore interface {
	// NoteTenants lists tenants whose credentials are in use, and renews their life on the list. Beyond MaxTenants
	// further tenants are not listed.
	NoteTenants(ctx context.Context, names ...string) error

	// ChangeTenant changes a tenant, and lists it if it is new. It fails with CodeStoreUnavailable if the list is full.
	ChangeTenant(ctx context.Context, name string, change func(*Tenant) error) (Tenant, error)

	// Tenants returns a page of the list, by name, and the cursor of the next page, empty on the last.
	Tenants(ctx context.Context, after string, limit int) (page []Tenant, next string, err error)

	// TenantsOf returns tenants by name, in order. A tenant that is not on the list has only its name.
	TenantsOf(ctx context.Context, names ...string) ([]Tenant, error)

	// BudgetsVersion returns a text that changes whenever a budget does. Empty: no tenant ever had a budget.
	BudgetsVersion(ctx context.Context) (string, error)

	// CountSessions returns about how many devices of each tenant are connected, in order. It is cheap.
	CountSessions(ctx context.Context, tenants ...string) ([]int64, error)
}
