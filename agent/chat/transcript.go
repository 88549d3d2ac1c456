package chat

import (
	"context"

	"github.com/farhand/farhand/registry"
)

// Transcript implements Agent. During a turn its last message may be a draft. The error is an *registry.Error.
func (e *Engine) Transcript(ctx context.Context, key registry.Key) (Transcript, error) {
	if err := key.Validate(); err != nil {
		return Transcript{}, err
	}
	c, err := e.cfg.Store.Conversation(ctx, key)
	if err != nil {
		return Transcript{}, err
	}
	t := Transcript{Title: c.Title, Busy: c.Busy, Messages: decode(c.Messages, e.cfg.Log)}
	mark := markOf(t.Messages)
	if !c.Busy {
		t.Messages = append(t.Messages, mend(t.Messages, c.Draft)...)
	} else if m, ok := draftOf(t.Messages, c.Draft); ok {
		t.Messages = append(t.Messages, m)
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		m.Content, m.Notice, m.Nonce = withNotice(m.Content, m.Notice), "", ""
		*m = mark.redactMessage(*m)
	}
	return t, nil
}

// CountMessages implements Agent. The error is an *registry.Error.
func (e *Engine) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	if err := key.Validate(); err != nil {
		return 0, err
	}
	return e.cfg.Store.CountMessages(ctx, key)
}
