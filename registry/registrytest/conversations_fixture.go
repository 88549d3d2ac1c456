package registrytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/farhand/farhand/registry"
)

// begin takes a free turn.
func (f *fixture) begin(session string, lease time.Duration) registry.Turn {
	f.Helper()
	t, err := f.store.BeginTurn(f.ctx, f.key(session), lease)
	f.must(err)
	return t
}

// inherit takes a turn for a minute, once the lease of another turn has lapsed.
func (f *fixture) inherit(session string) registry.Turn {
	f.Helper()
	var t registry.Turn
	f.eventually("the turn is free", func() bool {
		var err error
		if t, err = f.store.BeginTurn(f.ctx, f.key(session), time.Minute); err != nil {
			f.wantCode(err, registry.CodeBusy)
		}
		return err == nil
	})
	return t
}

// takeTurn runs do in a turn. Unlike inherit it may be called from any goroutine.
func (f *fixture) takeTurn(session string, do func(registry.Turn)) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		t, err := f.store.BeginTurn(f.ctx, f.key(session), time.Minute)
		if err == nil {
			do(t)
			if err := f.store.EndTurn(f.ctx, t); err != nil {
				f.Errorf("end: %v", err)
			}
			return
		}
		if !errors.Is(err, registry.CodeBusy) {
			f.Errorf("begin: %v", err)
			return
		}
		select {
		case <-f.ctx.Done():
			f.Errorf("no turn: %v", f.ctx.Err())
			return
		case <-tick.C:
		}
	}
}

// taken checks that a turn cannot begin, and that RetryAfter is within the bounds.
func (f *fixture) taken(session string, above, atMost time.Duration) {
	f.Helper()
	_, err := f.store.BeginTurn(f.ctx, f.key(session), time.Hour)
	f.wantCode(err, registry.CodeBusy)
	if after := registry.AsError(err).RetryAfter; after <= above || after > atMost {
		f.Errorf("ask again after %v, want more than %v and at most %v", after, above, atMost)
	}
}

// refused tries every write of a lost turn, and checks that none takes effect.
func (f *fixture) refused(what string, t registry.Turn) {
	f.Helper()
	before, err := f.store.Conversation(f.ctx, t.Key)
	f.must(err)
	_, appended := f.store.AppendMessages(f.ctx, t, raw(`"stale"`)...)
	_, nothing := f.store.AppendMessages(f.ctx, t)
	for op, err := range map[string]error{
		"append": appended, "append nothing": nothing,
		"draft":    f.store.SaveDraft(f.ctx, t, raw(`"stale"`)[0]),
		"no draft": f.store.SaveDraft(f.ctx, t, nil),
		"truncate": f.store.TruncateMessages(f.ctx, t, 0),
		"title":    f.store.SetTitle(f.ctx, t, "stale"),
		"owner":    f.store.SetOwner(f.ctx, t, registry.Owner{UserID: "stale"}),
		"renew":    f.store.RenewTurn(f.ctx, t, time.Hour),
		"end":      f.store.EndTurn(f.ctx, t),
	} {
		if !errors.Is(err, registry.ErrTurnLost) {
			f.Errorf("%s, %s: %v", what, op, err)
		}
	}
	after, err := f.store.Conversation(f.ctx, t.Key)
	if f.must(err); !reflect.DeepEqual(after, before) {
		f.Errorf("%s changed %+v into %+v", what, before, after)
	}
}

// say appends messages and returns how many there are now. It may be called from any goroutine.
func (f *fixture) say(t registry.Turn, messages ...json.RawMessage) int {
	f.Helper()
	n, err := f.store.AppendMessages(f.ctx, t, messages...)
	if err != nil {
		f.Errorf("append: %v", err)
	}
	return n
}

// count returns the number of messages. It may be called from any goroutine.
func (f *fixture) count(session string) int {
	f.Helper()
	n, err := f.store.CountMessages(f.ctx, f.key(session))
	if err != nil {
		f.Errorf("count: %v", err)
	}
	return n
}

func (f *fixture) conversation(session string) registry.Conversation {
	f.Helper()
	c, err := f.store.Conversation(f.ctx, f.key(session))
	f.must(err)
	return c
}

func (f *fixture) wantConversation(session string, want registry.Conversation) {
	f.Helper()
	if got := f.conversation(session); !reflect.DeepEqual(got, want) {
		f.Fatalf("conversation %s\nwant %s", show(got), show(want))
	}
}

// show renders a conversation with long texts truncated.
func show(c registry.Conversation) string {
	var messages []string
	for _, m := range c.Messages {
		messages = append(messages, fmt.Sprintf("%.100q", m))
	}
	return fmt.Sprintf("%q, busy %v, draft %.100q, %d messages %.500v",
		c.Title, c.Busy, c.Draft, len(messages), messages)
}

func (f *fixture) trail(session string, limit int) []string {
	f.Helper()
	trail, err := f.store.Trail(f.ctx, f.key(session), limit)
	f.must(err)
	return trail
}

// leave adds to a trail and returns it.
func (f *fixture) leave(session, entry string, limit int) []string {
	f.Helper()
	trail, err := f.store.AppendTrail(f.ctx, f.key(session), entry, limit)
	f.must(err)
	return trail
}

func list(messages ...json.RawMessage) []json.RawMessage { return messages }

// raw makes messages.
func raw(texts ...string) []json.RawMessage {
	all := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		all[i] = json.RawMessage(text)
	}
	return all
}
