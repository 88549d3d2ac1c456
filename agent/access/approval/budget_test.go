package approval_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// fakeBudget counts what is spent and not given back.
type fakeBudget struct {
	spent  int
	refuse error
}

func (b *fakeBudget) Begin(_ context.Context, _ share.Owner, bytes int) error {
	if b.refuse == nil {
		b.spent += bytes
	}
	return b.refuse
}

func (b *fakeBudget) GiveBack(_ share.Owner, bytes int) { b.spent -= bytes }

// What is asked is spent, what the store refuses is given back, and what the budget refuses is not asked.
func TestQuestionsSpendABudget(t *testing.T) {
	store, budget := memory.New(memory.Options{}), new(fakeBudget)
	k := approval.New(approval.Config{Store: store, Budget: budget})
	t.Cleanup(k.Close)
	ask := func() error {
		_, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Minute, []byte("the request"))
		return err
	}
	for range registry.MaxPendingOfOne {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	spent := budget.spent
	if spent < registry.MaxPendingOfOne<<11 {
		t.Errorf("%d questions spent %d bytes", registry.MaxPendingOfOne, spent)
	}
	if err := ask(); !errors.Is(err, registry.ErrManyOfOne) || budget.spent != spent {
		t.Errorf("one too many: %v, it spent %d bytes", err, budget.spent-spent)
	}
	budget.refuse = registry.Errorf(registry.CodeRateLimited, "too much")
	err := ask()
	if !errors.Is(err, registry.CodeRateLimited) || registry.AsError(err).Dispatched != registry.DispatchedNo {
		t.Errorf("refused with %v", err)
	}
}
