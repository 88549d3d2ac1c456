package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// journal keeps the messages of a turn in the store.
type journal struct {
	store registry.ConversationStore
	turn  registry.Turn
	count int // messages the conversation has now
	*spending
}

// spending is what a turn spends of a Budget.
type spending struct {
	budget  Budget
	by      share.Owner
	prepaid int  // bytes that are spent and not stored yet
	over    bool // more was stored than there was left
}

func (e *Engine) newSpending(caller auth.Identity) *spending {
	by := caller.Owner()
	if caller.Scope() == "" { // holders of the one token have what their tenant has
		by.Identity = ""
	}
	return &spending{budget: e.cfg.Budget, by: by}
}

// spend spends what a turn stores at first: turnCost and what was said.
func (e *Engine) spend(ctx context.Context, a Ask) (*spending, error) {
	s := e.newSpending(a.Caller)
	s.prepaid = turnCost + len(a.Content)
	if err := s.budget.Begin(ctx, s.by, s.prepaid); err != nil {
		refused := registry.AsError(err)
		return nil, &Error{Code: CodeSessionBusy, Message: refused.Message, Cause: refused}
	}
	return s, nil
}

// count counts bytes that were stored.
func (s *spending) count(ctx context.Context, bytes int) {
	if more := bytes - s.prepaid; more > 0 && s.budget.Add(ctx, s.by, more) {
		s.over = true
	}
	s.prepaid = max(s.prepaid-bytes, 0)
}

// giveBack returns what was not stored.
func (s *spending) giveBack() { s.budget.GiveBack(s.by, s.prepaid) }

// add keeps messages, all or none, also after ctx has ended. It tries for storeTime.
func (j *journal) add(ctx context.Context, messages ...provider.Message) error {
	raw, size := make([]json.RawMessage, len(messages)), 0
	for i, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode a message: %w", err)
		}
		raw[i] = b
		size += len(b)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	n, err := j.insist(ctx, raw)
	if err != nil {
		return fmt.Errorf("store what was said: %w", err)
	}
	j.count = n
	j.spending.count(ctx, size)
	return nil
}

// insist appends until that succeeds or ctx ends: a store that is away for a moment must not lose messages. A repeated
// append adds nothing twice.
func (j *journal) insist(ctx context.Context, raw []json.RawMessage) (int, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		n, err := j.store.AppendMessages(ctx, j.turn, raw...)
		if err == nil || !errors.Is(err, registry.CodeStoreUnavailable) {
			return n, err
		}
		if sleep(ctx, pause, nil) != nil {
			return 0, err
		}
	}
}
