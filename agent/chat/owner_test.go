package chat

import (
	"errors"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// The first turn says whose a conversation is; another user does not go on with it, and learns nothing.
func TestOwnersGoOnWithTheirConversations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("hello ann"), text("again"), text("anybody"))
		of := func(user string) error {
			_, err := r.engine.Ask(t.Context(), Ask{
				Key: key, Caller: auth.Identity{Tenant: "default", User: user}, Content: "hi",
				Owner: registry.Owner{UserID: user, DeviceID: "phone of " + user},
			}, nil)
			return err
		}
		for _, user := range []string{"ann", "ann", ""} {
			if err := of(user); err != nil {
				t.Fatalf("%q: %v", user, err)
			}
		}
		if err := of("bob"); !errors.Is(err, registry.CodeSessionNotFound) {
			t.Errorf("bob: %v", err)
		}
		c, err := r.store.Conversation(t.Context(), key)
		if err != nil || c.Owner != (registry.Owner{UserID: "ann", DeviceID: "phone of ann"}) || len(c.Messages) != 6 {
			t.Errorf("%+v with %d messages, %v", c.Owner, len(c.Messages), err)
		}
	})
}

// Whoever may end a turn from elsewhere ends it as its user would: told once, with what was said kept.
func TestAbortFromElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("Once upon", reached))
		if r.engine.Abort(key) {
			t.Error("there was nothing to abort")
		}
		go func() {
			<-reached
			for range 3 {
				r.engine.Abort(key)
			}
		}()
		_, ev, err := r.ask(t.Context(), "tell me")
		if !errors.Is(err, ErrAborted) {
			t.Fatal(err)
		}
		aborted := 0
		for _, e := range ev.all {
			if e.Type == EventAborted {
				aborted++
			}
		}
		if aborted != 1 {
			t.Errorf("told %d times", aborted)
		}
		c, err := r.engine.Transcript(t.Context(), key)
		if err != nil || len(c.Messages) != 2 || c.Messages[1].Content != "Once upon" || !c.Messages[1].Interrupted ||
			c.Busy {
			t.Errorf("kept %+v, %v", c, err)
		}
		if r.engine.Abort(key) {
			t.Error("the turn was over")
		}
	})
}
