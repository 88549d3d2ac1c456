package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

func (r *rig) complete(c Completion) (Reply, []provider.ToolCall, *events, error) {
	ev := &events{}
	reply, calls, err := r.engine.Complete(r.t.Context(), c, ev.emit)
	return reply, calls, ev, err
}

func TestCompleteRunsToolsOfTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{"Wait. "}, tool("a", "look", "{}")), text("Seen."))
		r.tools.set("look", returns("x"))
		temperature := 0.5
		reply, calls, ev, err := r.complete(Completion{
			Key: key, System: "Mine.", Temperature: &temperature, MaxTokens: 99, Stop: []string{"END"},
			Messages: []provider.Message{{Role: provider.RoleSystem, Content: "More."}, user("hi"),
				assistant("", tool("z", "old", "{}")),
				{Role: provider.RoleTool, ToolCallID: "z", Content: "theirs"}, user("look")},
		})
		if err != nil || len(calls) != 0 || reply.FullResponse != "Wait. Seen." || len(reply.Calls) != 1 {
			t.Fatalf("%+v, %v, %v", reply, calls, err)
		}
		wantTypes(t, ev, EventChunk, EventToolCall, EventToolResult, EventChunk, EventChunkReset, EventDone)
		sent := r.model.plain()[1]
		if sent.System != "Mine.\n\nMore.\n\n"+testMark.note() || sent.MaxTokens != 99 || *sent.Temperature != 0.5 ||
			sent.Stop[0] != "END" {
			t.Errorf("sent %+v", sent)
		}
		if sent.Messages[2].Content != "theirs" || sent.Messages[5].Content != toolText("look", "x") {
			t.Errorf("results sent: %q, %q", sent.Messages[2].Content, sent.Messages[5].Content)
		}
		if n := r.store.operations(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

func TestCallOfTheCallersOwnToolEndsTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{"Hm."}, tool("a", "look", "{}"), tool("b", "mine", `{"x":`),
			tool("c", "shared", "{}")))
		r.tools.set("look", returns("x"))
		r.tools.set("shared", returns("x"))
		reply, calls, _, err := r.complete(Completion{
			Key: key, Messages: []provider.Message{user("hi")},
			Tools: []provider.Tool{{Name: "mine"}, {Name: "shared", Description: "the caller's"}},
		})
		if err != nil || len(calls) != 2 || calls[0] != tool(calls[0].ID, "mine", `{"x":`) ||
			calls[1].Name != "shared" {
			t.Fatalf("calls %v, %v", calls, err)
		}
		if reply.Stop != provider.StopToolCalls || reply.FullResponse != "Hm." || len(r.tools.called()) != 1 ||
			r.tools.called()[0].ModelName != "look" {
			t.Errorf("%+v, called %v", reply, r.tools.called())
		}
		offered := r.model.plain()[0].Tools
		if len(offered) != 3 || offered[1].Description != "the caller's" || offered[2].Name != "look" {
			t.Errorf("offered %+v", offered)
		}
	})
}

func TestCompleteRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		_, _, ev, err := r.complete(Completion{Model: "other", Messages: []provider.Message{user("hi")}})
		if e := wantCode(t, err, ev, CodeModelNotFound); !strings.Contains(e.Message, "scripted") {
			t.Errorf("message %q", e.Message)
		}
		_, _, ev, err = r.complete(Completion{Messages: []provider.Message{{Role: provider.RoleSystem}}})
		wantCode(t, err, ev, CodeNoUserMessage)
		_, _, ev, err = r.complete(Completion{Messages: []provider.Message{user("hi")}}) // the script is empty
		wantCode(t, err, ev, CodeProvider)
	})
}

func TestCompleteByModelName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		second := &script{name: "second", steps: []step{text("from the second")}}
		e, err := NewEngine(Config{Models: []provider.Model{&script{name: "first"}, second}, Store: newFaulty()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		reply, _, err := e.Complete(t.Context(), Completion{Model: "second", Messages: []provider.Message{user("hi")}},
			nil)
		if err != nil || reply.FullResponse != "from the second" {
			t.Errorf("%+v, %v", reply, err)
		}
		if names := e.Models(); len(names) != 2 || names[0] != "first" {
			t.Errorf("models %v", names)
		}
	})
}

func TestCompletionsAreStateless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("a"), text("b"), text("c"))
		var scopes []agent.SessionContext
		r.engine.cfg.OpenTools = func(s agent.SessionContext) Tools { scopes = append(scopes, s); return nil }
		caller := auth.Identity{Tenant: "acme", User: "ann"}
		for range 2 {
			if _, _, _, err := r.complete(Completion{Caller: caller,
				Messages: []provider.Message{user("hi")}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, _, err := r.complete(Completion{Key: key, Caller: caller,
			Messages: []provider.Message{user("hi")}}); err != nil {
			t.Fatal(err)
		}
		if none := (registry.Key{Tenant: "acme"}); scopes[0].Key != none || scopes[1].Key != none ||
			scopes[2].Key != key ||
			!scopes[0].Stateless || !scopes[2].Stateless {
			t.Errorf("scopes %+v", scopes)
		}
		if scopes[0].Channel != ChannelCompletion || scopes[0].Caller != caller {
			t.Errorf("scope %+v", scopes[0])
		}
	})
}

func TestCompleteIsEndedLikeAnyTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("half", reached))
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-reached; cancel(ErrAborted) }()
		ev := &events{}
		reply, _, err := r.engine.Complete(ctx, Completion{Messages: []provider.Message{user("hi")}}, ev.emit)
		if !errors.Is(err, ErrAborted) || reply.FullResponse != "half" {
			t.Errorf("%+v, %v", reply, err)
		}
		wantTypes(t, ev, EventChunk, EventAborted)
		if err := r.engine.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_, _, _, err = r.complete(Completion{Messages: []provider.Message{user("hi")}})
		if e := wantCode(t, err, nil, CodeAgent); !errors.Is(e, registry.CodeDraining) {
			t.Errorf("%v, want draining", e)
		}
	})
}

// TestCompletionsNeedNoUser: whoever keeps the conversation says how it begins.
func TestCompletionsNeedNoUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("a"), text("b"), text("c"))
		greeting := []provider.Message{assistant("Welcome!"), user("hi")}
		for i, c := range []Completion{
			{Messages: greeting},
			{Messages: []provider.Message{{Role: provider.RoleSystem, Content: "Write a poem."}}},
			{System: "Be brief.", Messages: []provider.Message{assistant("Welcome!", tool("a", "look", "{}")),
				{Role: provider.RoleTool, ToolCallID: "a"}}},
		} {
			if _, _, _, err := r.complete(c); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			sent := r.model.plain()[i].Messages
			if i == 0 && (len(sent) != 2 || sent[0].Content != "Welcome!") || i == 1 && len(sent) != 0 || i == 2 &&
				len(sent) != 2 {
				t.Errorf("%d: sent %+v", i, sent)
			}
		}
		_, _, ev, err := r.complete(Completion{})
		wantCode(t, err, ev, CodeNoUserMessage)
	})
}
