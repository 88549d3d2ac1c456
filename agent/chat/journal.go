package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// journal keeps the messages of a turn.
type journal interface {
	// add keeps messages, all or none, also after ctx has ended. It tries for storeTime.
	add(ctx context.Context, messages ...provider.Message) error

	// drafts returns the function that saves drafts of an answer. Nil: there is none.
	drafts() func(context.Context, json.RawMessage) error
}

// storeJournal keeps a turn in the store.
type storeJournal struct {
	store registry.ConversationStore
	turn  registry.Turn
	count int // messages the conversation has now
}

// add implements journal.
func (j *storeJournal) add(ctx context.Context, messages ...provider.Message) error {
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
func (j *storeJournal) insist(ctx context.Context, raw []json.RawMessage) (int, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		n, err := j.store.AppendMessages(ctx, j.turn, raw...)
		if err == nil || !errors.Is(err, registry.CodeStoreUnavailable) {
			return n, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, err
		}
	}
}

// drafts implements journal.
func (j *storeJournal) drafts() func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, draft json.RawMessage) error { return j.store.SaveDraft(ctx, j.turn, draft) }
}

// noJournal is the journal of conversations that their caller keeps.
type noJournal struct{}

// add implements journal.
func (noJournal) add(context.Context, ...provider.Message) error { return nil }

// drafts implements journal.
func (noJournal) drafts() func(context.Context, json.RawMessage) error { return nil }
