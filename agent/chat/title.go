package chat

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry/legible"
)

const titleLimit = 60 // characters

// titleOf makes a title from the beginning of the conversation. Asking the model would cost a request, its tokens and
// its time, and could fail. People recognize a conversation by their first words anyway.
func titleOf(messages []provider.Message) string {
	for _, m := range messages {
		if m.Role == provider.RoleUser {
			for line := range strings.Lines(legible.Clean(m.Content)) {
				if words := strings.Fields(line); len(words) > 0 {
					return shorten(words)
				}
			}
			return ""
		}
	}
	return ""
}

// shorten joins as many words as fit. A first word that does not fit is truncated.
func shorten(words []string) string {
	title := strings.Join(words, " ")
	if utf8.RuneCountInString(title) <= titleLimit {
		return title
	}
	runes := []rune(title)[:titleLimit]
	if i := strings.LastIndexByte(string(runes), ' '); i > 0 {
		return string(runes)[:i] + "…"
	}
	return string(runes[:titleLimit-1]) + "…" // the ellipsis is the last character
}

// name gives a title to a conversation that has none. A failure costs only the title.
func (t *turn) name(ctx context.Context) string {
	title := titleOf(t.loop.history)
	if title == "" {
		return ""
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := t.engine.cfg.Store.SetTitle(ctx, t.lock.Turn, title); err != nil {
		t.engine.cfg.Log.Warn("title not stored", "session", t.ask.Key.Session, "error", err)
		return ""
	}
	t.loop.out.send(Event{Type: EventTitle, Title: title})
	return title
}
