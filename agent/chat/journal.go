package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// journal keeps the messages of a turn in the store.
type journal struct {
	store registry.ConversationStore
	turn  registry.Turn
	count int // messages the conversation has now
}

// add keeps messages, all or none, also after ctx has ended. It tries for storeTime.
func (j *journal) add(ctx context.Context, messages ...provider.Message) error {
	raw := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode a message: %w", err)
		}
		raw[i] = b
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	n, err := j.insist(ctx, raw)
	if err != nil {
		return fmt.Errorf("store what was said: %w", err)
	}
	j.count = n
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
