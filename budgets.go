package farhand

import (
	"context"
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/internal/reload"
	"github.com/farhand/farhand/registry"
)

// openBudgets builds what holds tenants and identities to their budgets, with the prices of models.
func (g *Gateway) openBudgets(store registry.Store) error {
	g.prices = new(budget.Prices)
	if path := g.cfg.ModelPrices; path != "" {
		prices, err := budget.OpenPrices(path, reload.DefaultInterval, g.log)
		if err != nil {
			return fmt.Errorf("FARHAND_MODEL_PRICES_FILE: %w", err)
		}
		g.prices = prices
		for _, model := range g.modelNames() {
			if _, ok := prices.Of(model); !ok {
				g.log.Warn("a model has no price in FARHAND_MODEL_PRICES_FILE; it costs nothing", "model", model)
			}
		}
	}
	g.budgets = budget.New(budget.Config{
		Store: store, Prices: g.prices, Open: g.cfg.LimitsFail == limitsOpen, Audit: g.audit, Warn: g.budgetReached,
		Log: g.log,
	})
	return nil
}

// closeBudgets writes what was spent last. It must run after all calls and turns have ended, and before the audit log
// closes.
func (g *Gateway) closeBudgets(ctx context.Context) error {
	if g.prices != nil {
		g.prices.Close()
	}
	if g.budgets == nil {
		return nil
	}
	return g.budgets.Close(ctx)
}

// callBytes counts the bytes of calls. It implements agent.Meter.
type callBytes struct{ budgets *budget.Ledger }

// CallEnded implements agent.Meter.
func (c callBytes) CallEnded(end agent.CallEnd) {
	if end.Outcome != agent.OutcomeReplayed { // counted when it ran
		c.budgets.CallEnded(end.Owner, int64(end.BytesIn)+int64(end.BytesOut))
	}
}

// budgetReached records in the activity feed of a tenant that a share of a budget is spent. Users see events of their
// own budgets only.
func (g *Gateway) budgetReached(e budget.Event) {
	a := registry.Activity{Tenant: e.Tenant, Type: registry.ActivityBudgetWarning, Reason: e.Text()}
	if e.Percent == 100 {
		a.Type = registry.ActivityBudgetSpent
	}
	a.UserID, _ = strings.CutPrefix(e.Identity, "user:")
	g.pod.Calls.Note(a)
}
