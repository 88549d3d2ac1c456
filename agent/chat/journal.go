package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// journal keeps the messages of a turn in the store.
type journal struct {
	store  registry.ConversationStore
	turn   registry.Turn
	count  int // messages the conversation has now
	budget Budget
	by     share.Owner // whose budget
	paid   int         // bytes of the budget that are spent and not stored yet
}

// payerOf returns whose budget a turn of an identity spends. Holders of shared credentials have what their tenant has.
func payerOf(id auth.Identity) share.Owner {
	by := id.Owner()
	if id.Scope() == "" {
		by.Identity = ""
	}
	return by
}

// begin spends the bytes that the turn stores first.
func (j *journal) begin(ctx context.Context, bytes int) error {
	if err := j.budget.Begin(ctx, j.by, bytes+turnCost); err != nil {
		refused := registry.AsError(err)
		return &Error{Code: CodeSessionBusy, Message: refused.Message, Cause: refused}
	}
	j.paid = bytes
	return nil
}

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
	if more := size - j.paid; more > 0 {
		j.budget.Add(ctx, j.by, more)
	}
	j.paid = max(j.paid-size, 0)
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
