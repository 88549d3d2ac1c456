package provider_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func TestTextIsStreamed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		next := make(chan struct{})
		s := b.server(t, scripted.Reply(
			scripted.Text("Hel", "lo"), scripted.Ping(), scripted.Hold(next), scripted.Text(" Köln 🎉"),
			scripted.Usage(12, 34),
		))
		m := b.model(s, options{})
		var h heard
		a, err := m.Generate(deadline(t), ask("hi"), func(d provider.Delta) {
			if h.emit(d); h.said() == "Hello" {
				close(next) // the rest is only said when the first words are here
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(h.text, "|"); got != "Hel|lo| Köln 🎉" {
			t.Errorf("emitted %q", got)
		}
		want := provider.Answer{
			Message: provider.Message{Role: provider.RoleAssistant, Content: "Hello Köln 🎉"},
			Stop:    provider.StopEnd, Usage: provider.Usage{Input: 12, Output: 34},
		}
		if !reflect.DeepEqual(a, want) {
			t.Errorf("answer %+v, want %+v", a, want)
		}
		if m.Name() != "test-model" || s.Requests()[0].Model != "test-model" {
			t.Errorf("name %q, asked for %q", m.Name(), s.Requests()[0].Model)
		}
	})
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		for _, want := range []provider.StopReason{provider.StopEnd, provider.StopLength, provider.StopRefusal} {
			s := b.server(t, scripted.Reply(scripted.Text("x"), scripted.Stop(want)))
			if a, _ := generate(t, b.model(s, options{}), ask("hi")); a.Stop != want {
				t.Errorf("stop %s, want %s", a.Stop, want)
			}
		}
		// What an answer holds counts more than how it says it ended.
		call := scripted.Calls(scripted.Call{Name: "echo"})
		s := b.server(t, scripted.Reply(call, scripted.Stop(provider.StopEnd)))
		if a, _ := generate(t, b.model(s, options{}), ask("hi")); a.Stop != provider.StopToolCalls {
			t.Errorf("stop %s with a call", a.Stop)
		}
		s = b.server(t, scripted.Reply(scripted.Text("x"), scripted.Stop(provider.StopToolCalls)))
		if a, _ := generate(t, b.model(s, options{}), ask("hi")); a.Stop != provider.StopEnd {
			t.Errorf("stop %s without a call", a.Stop)
		}
	})
}

func TestParallelCallsAreAssembled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t, scripted.Reply(
			scripted.Thinking("Let me", " see."),
			scripted.Text("Looking."),
			scripted.Calls(
				scripted.Call{ID: "a", Name: "camera", Args: `{"side":"front","text":"ü\"}"}`, Pieces: 9},
				scripted.Call{ID: "b", Name: "nobody-knows", Args: `{"broken": `, Pieces: 2},
				scripted.Call{ID: "c", Name: "ping", Args: "", Pieces: 1},
			),
		))
		a, h := generate(t, b.model(s, options{}), ask("hi"))
		want := []provider.ToolCall{
			{ID: "a", Name: "camera", Args: `{"side":"front","text":"ü\"}"}`},
			{ID: "b", Name: "nobody-knows", Args: `{"broken": `},
			{ID: "c", Name: "ping", Args: "{}"},
		}
		if !slices.Equal(a.Message.ToolCalls, want) {
			t.Errorf("calls %+v, want %+v", a.Message.ToolCalls, want)
		}
		if a.Stop != provider.StopToolCalls || a.Message.Content != "Looking." {
			t.Errorf("answer %+v", a)
		}
		if h.thought() != "Let me see." || len(a.Message.Thinking) != 1 || a.Message.Thinking[0].Text != "Let me see." {
			t.Errorf("thought %q, kept %+v", h.thought(), a.Message.Thinking)
		}
	})
}

// A conversation with everything in it must satisfy the vendor's rules and arrive as it was.
func TestConversationsArrive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t,
			scripted.Reply(scripted.Thinking("I need both."), scripted.Calls(
				scripted.Call{ID: "one", Name: "camera", Args: `{"side":"front"}`},
				scripted.Call{ID: "two", Name: "no such.tool!", Args: `not JSON`},
			)),
			scripted.Reply(scripted.Text("Done.")),
		)
		m := b.model(s, options{})
		temperature := 0.5
		r := provider.Request{
			System: "Be brief.", Messages: []provider.Message{user("look")}, MaxTokens: 77, Temperature: &temperature,
			Stop: []string{"END"}, Tools: []provider.Tool{
				{Name: "camera", Description: "Take a picture.",
					Parameters: json.RawMessage(`{"type":"object","properties":{"z":{"type":"string"},` +
						`"a":{"const":12345678901234567890}}}`)},
				{Name: "bare"},
			},
		}
		first, _ := generate(t, m, r)
		r.Messages = append(r.Messages, first.Message,
			provider.Message{Role: provider.RoleTool, ToolCallID: "one", ToolName: "camera", Content: "a cat"},
			provider.Message{Role: provider.RoleTool, ToolCallID: "two", ToolName: "no such.tool!",
				Content: "no such tool", Failed: true},
			user("and?"),
		)
		if a, _ := generate(t, m, r); a.Message.Content != "Done." {
			t.Errorf("answer %+v", a)
		}
		got := s.Requests()[1]
		if got.System != "Be brief." || got.MaxTokens != 77 || got.Temperature == nil || *got.Temperature != 0.5 ||
			!slices.Equal(got.Stop, []string{"END"}) {
			t.Errorf("arrived %+v", got)
		}
		if len(got.Tools) != 2 || string(got.Tools[0].Parameters) != string(r.Tools[0].Parameters) ||
			got.Tools[0].Description != "Take a picture." {
			t.Errorf("tools %+v", got.Tools)
		}
		calls := []provider.ToolCall{
			{ID: "one", Name: "camera", Args: `{"side":"front"}`},
			{ID: "two", Name: "no_such_tool_", Args: `{"malformed_arguments":"not JSON"}`},
		}
		if len(got.Messages) != 5 || !slices.Equal(got.Messages[1].ToolCalls, calls) {
			t.Fatalf("messages %+v", got.Messages)
		}
		// Chat completions want no thoughts of turns before; see TestOpenAIReasoningGoesBackAsItCame.
		if th := got.Messages[1].Thinking; b.name == "anthropic" && (len(th) != 1 || th[0].Text != "I need both.") {
			t.Errorf("thoughts sent back: %+v", th)
		}
		for i, want := range []string{"look", "", "a cat", "no such tool", "and?"} {
			if m := got.Messages[i]; m.Content != want || m.Role != r.Messages[i].Role {
				t.Errorf("message %d: %+v", i, m)
			}
		}
	})
}

func TestInterruptedAndEmptyMessages(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t, scripted.Reply(scripted.Text("ok")))
		generate(t, b.model(s, options{}), provider.Request{Messages: []provider.Message{
			user("one"),
			{Role: provider.RoleAssistant, Interrupted: true, Thinking: []provider.Thought{{Text: "cut o"}}},
			user("two"),
			{Role: provider.RoleAssistant, Content: "half a sent", Interrupted: true},
			user("three"),
		}})
		var got []string
		for _, m := range s.Requests()[0].Messages {
			got = append(got, fmt.Sprintf("%s:%s", m.Role, m.Content))
		}
		if want := "user:one user:two assistant:half a sent user:three"; strings.Join(got, " ") != want {
			t.Errorf("arrived %q", got)
		}
	})
}

func TestIdsOfOtherVendors(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t, scripted.Reply(scripted.Text("ok")))
		generate(t, b.model(s, options{}), provider.Request{Messages: []provider.Message{
			user("hi"),
			{Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{{ID: "functions.echo:0",
				Name: strings.Repeat("n", 80), Args: " "}}},
			{Role: provider.RoleTool, ToolCallID: "functions.echo:0", Content: ""},
		}})
		got := s.Requests()[0].Messages
		if got[1].ToolCalls[0].ID != got[2].ToolCallID || got[1].ToolCalls[0].Args != "{}" {
			t.Errorf("arrived %+v", got)
		}
	})
}

func TestUnknownRolesAndSchemasAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		m := b.model(b.server(t), options{}) // which must not be asked
		for _, r := range []provider.Request{
			{Messages: []provider.Message{{Role: provider.RoleSystem, Content: "x"}}},
			{Messages: []provider.Message{user("x")},
				Tools: []provider.Tool{{Name: "t", Parameters: json.RawMessage("{")}}},
		} {
			_, err := m.Generate(deadline(t), r, nil)
			if e, ok := err.(*provider.Error); !ok || e.Kind != provider.KindRequest {
				t.Errorf("error %v", err)
			}
		}
	})
}

func TestModelsAreConcurrent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.script(t, func(r scripted.Request) scripted.Step {
			return scripted.Reply(scripted.Text("you said ", r.Messages[0].Content))
		})
		m := b.model(s, options{})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				text := fmt.Sprintf("number %d", i)
				a, err := m.Generate(t.Context(), ask(text), nil)
				if err != nil || a.Message.Content != "you said "+text {
					t.Errorf("%s: %+v, %v", text, a, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestKeyIsSentOnlyWhereThereIsOne(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "from-the-environment")
	t.Setenv("OPENAI_ORG_ID", "from-the-environment")
	t.Setenv("ANTHROPIC_API_KEY", "from-the-environment")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "from-the-environment")
	for _, b := range backends {
		for _, noKey := range []bool{true, false} {
			s := b.server(t, scripted.Reply(scripted.Text("ok")))
			generate(t, b.model(s, options{noKey: noKey}), ask("hi"))
			h := s.Requests()[0].Header
			if text := fmt.Sprint(h); strings.Contains(text, "from-the-environment") ||
				strings.Contains(text, key) == noKey {
				t.Errorf("%s, no key %v: headers %v", b.name, noKey, h)
			}
		}
	}
}
