package agent

import (
	"context"
	"slices"

	"github.com/farhand/farhand/internal/share"
)

// Budget counts calls against the budgets of tenants and identities. Package agent/access/budget implements it.
type Budget interface {
	// Call counts a call of an identity, or returns why it is refused. It is safe for concurrent use.
	Call(ctx context.Context, who share.Owner) error
}

// Budgets is the hook that counts each call once, like RateLimits and after it, however often the call is admitted.
type Budgets struct{ budget Budget }

// NewBudgets returns the hook.
func NewBudgets(b Budget) Budgets { return Budgets{b} }

// budgetCharge is the name under which a call notes that its budgets have counted it. No rate limit has it.
const budgetCharge = "budget"

// Name implements Hook.
func (Budgets) Name() string { return "budgets" }

// Before implements BeforeHook.
func (b Budgets) Before(ctx context.Context, inv Invocation) (Decision, error) {
	if slices.Contains(inv.charged, budgetCharge) {
		return Pass(), nil
	}
	if err := b.budget.Call(ctx, inv.Caller.Owner()); err != nil {
		return Decision{}, err
	}
	return Decision{charged: []string{budgetCharge}}, nil
}
