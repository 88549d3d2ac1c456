package chat

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

var mine = []provider.Tool{{Name: "mine"}, {Name: "other"}}

// comeBack returns the conversation as a caller keeps it: the answer as it was shown, and results of the calls in it.
func comeBack(messages []provider.Message, reply Reply, calls []provider.ToolCall) []provider.Message {
	messages = append(messages, provider.Message{Role: provider.RoleAssistant, Content: reply.FullResponse,
		ToolCalls: calls})
	for _, c := range calls {
		messages = append(messages, provider.Message{Role: provider.RoleTool, ToolCallID: c.ID, ToolName: c.Name,
			Content: "of " + c.Name})
	}
	return messages
}

// lines shows messages, one on a line.
func lines(messages []provider.Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(string(m.Role) + " " + m.Content)
		for _, c := range m.ToolCalls {
			b.WriteString(" →" + c.Name)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// A tool of the device that ran before a call was returned to the caller does not run again when the caller comes back,
// to whatever pod: the model reads what it said.
func TestWhatRanBeforeACallWasHandedOutIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{},
			say([]string{"Let me look."}, tool("a", "look", "{}")),
			say([]string{" Hm."}, tool("b", "mine", `{"x":1}`), tool("c", "look", `{"again":1}`),
				tool("d", "other", "{}")),
			text("Both."), text("Later."))
		r.tools.set("look", returns("x"))
		asked := []provider.Message{user("hi")}
		reply, calls, _, err := r.complete(Completion{Key: key, Messages: asked, Tools: mine})
		if err != nil || len(calls) != 2 || calls[0].Name != "mine" || calls[0].Args != `{"x":1}` ||
			calls[1].Name != "other" {
			t.Fatalf("calls %v, %v", calls, err)
		}
		if len(r.tools.called()) != 2 || len(calls[0].ID) > 40 || calls[0].ID == calls[1].ID {
			t.Errorf("called %v, returned out %v", r.tools.called(), calls)
		}
		r.engine = r.pod(Limits{}) // the caller comes back to another pod
		asked = comeBack(asked, reply, calls)
		reply, more, _, err := r.complete(Completion{Key: key, Messages: asked, Tools: mine})
		if err != nil || len(more) != 0 || reply.FullResponse != "Both." || len(r.tools.called()) != 2 {
			t.Fatalf("%+v, %v, %v, called %d times", reply, more, err, len(r.tools.called()))
		}
		want := "user hi\nassistant Let me look. →look\ntool " + toolText("look", "x") +
			"\nassistant  Hm. →mine →look →other\n" +
			"tool of mine\ntool " + toolText("look", "x") + "\ntool of other\n"
		if got := lines(r.model.plain()[2].Messages); got != want {
			t.Errorf("the model read\n%s\nwant\n%s", got, want)
		}
		asked = append(asked, assistant("Both."), user("and then?"))
		if _, _, _, err = r.complete(Completion{Key: key, Messages: asked, Tools: mine}); err != nil {
			t.Fatal(err)
		}
		if got := lines(r.model.plain()[3].Messages); got != want+"assistant Both.\nuser and then?\n" {
			t.Errorf("in the next turn the model read\n%s", got)
		}
	})
}

// A caller that takes calls apart gets each of them right.
func TestHandedOutCallsMayComeBackOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("a", "look", "{}")), use(tool("b", "mine", "{}"), tool("c", "other", "{}")),
			text("Fine."))
		r.tools.set("look", returns("x"))
		asked := []provider.Message{user("hi")}
		reply, calls, _, err := r.complete(Completion{Key: key, Messages: asked, Tools: mine})
		if err != nil || len(calls) != 2 {
			t.Fatal(calls, err)
		}
		asked = comeBack(comeBack(asked, reply, calls[1:]), reply, calls[:1])
		if _, _, _, err = r.complete(Completion{Key: key, Messages: asked, Tools: mine}); err != nil {
			t.Fatal(err)
		}
		want := "user hi\nassistant  →look\ntool " + toolText("look", "x") +
			"\nassistant  →other\ntool of other\nassistant  →mine\ntool of mine\n"
		if got := lines(r.model.plain()[2].Messages); got != want {
			t.Errorf("the model read\n%s\nwant\n%s", got, want)
		}
	})
}

// What is not kept any more, or is somebody else's, is not made up for by silence: the model is told that tools ran.
func TestAModelIsToldWhatIsNotKeptAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ann, ben := auth.Identity{Tenant: "default", User: "ann"}, auth.Identity{Tenant: "default", User: "ben"}
		admin := auth.Identity{Tenant: "default", Admin: true, Credential: auth.CredentialToken}
		key1 := auth.Identity{Tenant: "default", Credential: "key:1"}
		key2, annsKey := auth.Identity{Tenant: "default", Credential: "key:2"}, ann
		annsKey.Credential = "key:2"
		for name, tt := range map[string]struct {
			wait     time.Duration
			whose    auth.Identity
			by       auth.Identity
			expected bool // that it is known
		}{
			"in time":                    {time.Minute - time.Second, ann, ann, true},
			"too late":                   {time.Minute, ann, ann, false},
			"another key of the user":    {0, ann, annsKey, true},
			"somebody else":              {0, ann, ben, false},
			"other tenant":               {0, ann, auth.Identity{Tenant: "acme", User: "ann"}, false},
			"the one token, of a user":   {0, ann, admin, false},
			"a user, of the one token":   {0, admin, ann, false},
			"a key without a user":       {0, key1, key1, true},
			"another key without a user": {0, key1, key2, false},
			"a user named like a key":    {0, key1, auth.Identity{Tenant: "default", User: "key:1"}, false},
			"a user named like a scope":  {0, ann, auth.Identity{Tenant: "default", User: "user:ann"}, false},
		} {
			r := newRig(t, Limits{Continuation: time.Minute}, use(tool("a", "look", "{}")),
				use(tool("b", "mine", "{}")), text("Fine."))
			r.tools.set("look", returns("secret"))
			asked := []provider.Message{user("hi")}
			reply, calls, _, err := r.complete(Completion{Caller: tt.whose, Messages: asked, Tools: mine})
			if err != nil || len(calls) != 1 {
				t.Fatal(name, calls, err)
			}
			time.Sleep(tt.wait)
			if _, _, _, err = r.complete(Completion{Caller: tt.by, Messages: comeBack(asked, reply, calls),
				Tools: mine}); err != nil {
				t.Fatal(name, err)
			}
			got := lines(r.model.plain()[2].Messages)
			if tt.expected != strings.Contains(got, "secret") ||
				tt.expected == strings.Contains(got, "no longer stored") {
				t.Errorf("%s: the model read\n%s", name, got)
			}
			if !tt.expected && !strings.Contains(got, "\nof mine\n") {
				t.Errorf("%s: the caller's result is missing:\n%s", name, got)
			}
		}
	})
}

// Where nothing ran there is nothing to keep, and nothing to be told.
func TestACallHandedOutAloneIsTheModelsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("b", "mine", "{}")), text("Fine."))
		asked := []provider.Message{user("hi")}
		reply, calls, _, err := r.complete(Completion{Key: key, Messages: asked, Tools: mine})
		if err != nil || len(calls) != 1 || calls[0].ID != "b" {
			t.Fatal(calls, err)
		}
		if _, _, _, err = r.complete(Completion{Key: key, Messages: comeBack(asked, reply, calls),
			Tools: mine}); err != nil {
			t.Fatal(err)
		}
		if got := lines(r.model.plain()[1].Messages); got != "user hi\nassistant  →mine\ntool of mine\n" {
			t.Errorf("the model read\n%s", got)
		}
	})
}

// Thoughts that a vendor signed are sent back with the calls they led to.
func TestSignedThoughtsOfHandedOutCallsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		thought := []provider.Thought{{Text: "hm", Signature: "signed"}}
		r := newRig(t, Limits{}, func(context.Context, provider.Request, func(provider.Delta)) (provider.Answer,
			error) {
			return provider.Answer{Message: provider.Message{Thinking: thought,
				ToolCalls: []provider.ToolCall{tool("b", "mine", "{}")}}}, nil
		}, text("Fine."))
		asked := []provider.Message{user("hi")}
		reply, calls, _, err := r.complete(Completion{Messages: asked, Tools: mine})
		if err != nil || len(calls) != 1 {
			t.Fatal(calls, err)
		}
		if _, _, _, err = r.complete(Completion{Messages: comeBack(asked, reply, calls), Tools: mine}); err != nil {
			t.Fatal(err)
		}
		if got := r.model.plain()[1].Messages[1].Thinking; len(got) != 1 || got[0] != thought[0] {
			t.Errorf("thoughts %v", got)
		}
	})
}

// With the store away nothing that ran may run again: the turn fails, and may be tried again.
func TestWithoutTheStoreNothingRunsTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("a", "look", "{}")), use(tool("b", "mine", "{}")), text("Fine."))
		r.tools.set("look", returns(strings.Repeat("x", 30<<10)))
		asked := []provider.Message{user("hi")}
		reply, calls, _, err := r.complete(Completion{Key: key, Messages: asked, Tools: mine})
		if err != nil || len(calls) != 1 {
			t.Fatal(calls, err)
		}
		away := registry.StoreUnavailable("read", errors.New("away"))
		r.store.fault = func(_ context.Context, op string) error {
			if op == "continuations" {
				return away
			}
			return nil
		}
		asked = comeBack(asked, reply, calls)
		if _, _, _, err = r.complete(Completion{Key: key, Messages: asked, Tools: mine}); !errors.Is(err,
			registry.CodeStoreUnavailable) {
			t.Errorf("%v", err)
		}
		r.store.fault = nil
		if _, _, _, err = r.complete(Completion{Key: key, Messages: asked, Tools: mine}); err != nil ||
			len(r.tools.called()) != 1 {
			t.Errorf("%v, called %d times", err, len(r.tools.called()))
		}
	})
}
