package provider_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func thinker(s *scripted.Server, tokens int, adaptive bool) provider.Model {
	return provider.NewAnthropic(provider.Config{
		Name: "claude", BaseURL: s.URL + "/v1/", HTTPClient: s.Client(), ThinkingTokens: tokens,
		AdaptiveThinking: adaptive,
	})
}

// anthropicRequest is what tests look at in a body.
type anthropicRequest struct {
	MaxTokens   int            `json:"max_tokens"`
	Temperature *float64       `json:"temperature"`
	Thinking    map[string]any `json:"thinking"`
	Messages    []struct {
		Role    string           `json:"role"`
		Content []map[string]any `json:"content"`
	} `json:"messages"`
}

func bodyOf(t *testing.T, s *scripted.Server, i int) anthropicRequest {
	t.Helper()
	var b anthropicRequest
	if err := json.Unmarshal(s.Requests()[i].Raw, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// blocks lists roles and types of blocks.
func (b anthropicRequest) blocks() string {
	var out []string
	for _, m := range b.Messages {
		types := []string{}
		for _, c := range m.Content {
			types = append(types, c["type"].(string))
		}
		out = append(out, m.Role+":"+strings.Join(types, ","))
	}
	return strings.Join(out, " ")
}

func TestAnthropicThoughtsGoBackSigned(t *testing.T) {
	t.Parallel()
	s := scripted.Anthropic(t,
		scripted.Reply(scripted.Thinking("One", " two."), scripted.Redacted("c2VjcmV0"),
			scripted.Calls(scripted.Call{ID: "x", Name: "echo", Args: "{}"})),
		scripted.Reply(scripted.Text("Done.")),
	)
	m := thinker(s, 100, false)
	r := ask("hi")
	a, _ := generate(t, m, r)
	if th := a.Message.Thinking; len(th) != 2 || th[0].Text != "One two." || th[0].Signature == "" ||
		th[1].Redacted != "c2VjcmV0" {
		t.Fatalf("thoughts %+v", a.Message.Thinking)
	}
	stored, err := json.Marshal(a.Message) // as conversations are
	if err != nil {
		t.Fatal(err)
	}
	var back provider.Message
	if err := json.Unmarshal(stored, &back); err != nil {
		t.Fatal(err)
	}
	r.Messages = append(r.Messages, back, provider.Message{Role: provider.RoleTool, ToolCallID: "x", Content: "ok"})
	generate(t, m, r)
	b := bodyOf(t, s, 1)
	if got := b.blocks(); got != "user:text assistant:thinking,redacted_thinking,tool_use user:tool_result" {
		t.Errorf("blocks %s", got)
	}
	want := map[string]any{"type": "enabled", "budget_tokens": 1024.0}
	if !reflect.DeepEqual(b.Thinking, want) || b.MaxTokens != 8192+1024 || b.Temperature != nil {
		t.Errorf("thinking %v, %d tokens, temperature %v", b.Thinking, b.MaxTokens, b.Temperature)
	}
}

// A turn that began without thoughts must end without: the API refuses its calls otherwise.
func TestAnthropicTurnsWithoutThoughts(t *testing.T) {
	t.Parallel()
	for _, thought := range [][]provider.Thought{nil, {{Text: "unsigned"}},
		{{Text: "of another model", Signature: "reasoning_content"}}} {
		call := provider.Message{Role: provider.RoleAssistant, Thinking: thought,
			ToolCalls: []provider.ToolCall{{ID: "x", Name: "echo", Args: "{}"}}}
		turn := []provider.Message{user("hi"), call, {Role: provider.RoleTool, ToolCallID: "x", Content: "ok"}}
		s := scripted.Anthropic(t, scripted.Reply(scripted.Text("a")), scripted.Reply(scripted.Text("b")))
		m := thinker(s, 2000, false)
		generate(t, m, provider.Request{Messages: turn})
		generate(t, m, provider.Request{Messages: append(turn,
			provider.Message{Role: provider.RoleAssistant, Content: "a"}, user("next"))})
		if b := bodyOf(t, s, 0); b.Thinking != nil || b.MaxTokens != 8192 || strings.Contains(b.blocks(), "thinking") {
			t.Errorf("thinking %v within the turn: %s", b.Thinking, b.blocks())
		}
		if b := bodyOf(t, s, 1); b.Thinking["budget_tokens"] != 2000.0 {
			t.Errorf("thinking %v in the next turn", b.Thinking)
		}
	}
}

func TestAnthropicAdaptiveThinking(t *testing.T) {
	t.Parallel()
	s := scripted.Anthropic(t, scripted.Reply(scripted.Text("a")))
	generate(t, thinker(s, 0, true), ask("hi"))
	b := bodyOf(t, s, 0)
	if b.Thinking["type"] != "adaptive" || b.Thinking["display"] != "summarized" || b.MaxTokens != 8192 {
		t.Errorf("thinking %v, %d tokens", b.Thinking, b.MaxTokens)
	}
}

func TestAnthropicMergesMessages(t *testing.T) {
	t.Parallel()
	s := scripted.Anthropic(t, scripted.Reply(scripted.Text("ok")))
	calls := []provider.ToolCall{{ID: "x", Name: "echo", Args: ""}, {ID: "y", Name: "echo", Args: `[1]`}}
	hot := 1.0
	generate(t, backends[1].model(s, options{maxTokens: 5}),
		provider.Request{Temperature: &hot, System: " \n", Messages: []provider.Message{
			user("a"), user(" "), user("b"),
			{Role: provider.RoleAssistant, Content: "\n", ToolCalls: calls},
			{Role: provider.RoleTool, ToolCallID: "x", Content: "fine"},
			{Role: provider.RoleTool, ToolCallID: "y", Content: "", Failed: true},
			user("c"),
			{Role: provider.RoleAssistant, Content: "d", Interrupted: true},
			{Role: provider.RoleAssistant, Content: "e"},
			user("f"),
		}})
	b := bodyOf(t, s, 0)
	want := "user:text,text assistant:tool_use,tool_use user:tool_result,tool_result,text assistant:text,text user:text"
	if got := b.blocks(); got != want {
		t.Errorf("blocks %s", got)
	}
	results := b.Messages[2].Content
	if _, ok := results[0]["is_error"]; ok || results[1]["is_error"] != true || results[1]["content"] != nil {
		t.Errorf("results %v", results)
	}
	if b.MaxTokens != 5 || b.Temperature == nil || *b.Temperature != 1 || s.Requests()[0].System != "" {
		t.Errorf("%d tokens, temperature %v", b.MaxTokens, b.Temperature)
	}
}

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

func TestAnthropicOddities(t *testing.T) {
	t.Parallel()
	stream := event("message_delta", `{"type":"message_delta","delta":{},"usage":{"input_tokens":1,`+
		`"cache_read_input_tokens":20,"cache_creation_input_tokens":300,"output_tokens":7}}`) +
		event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text",`+
			`"text":"at once, "}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta",`+
			`"citation":{}}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta",`+
			`"text":"and later"}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":9,"delta":{"type":"text_delta",`+
			`"text":"of nothing"}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		event("something_new", `{"type":"something_new"}`) +
		event("content_block_start", `{"type":"content_block_start","index":1,`+
			`"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta",`+
			`"partial_json":"{}"}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":1}`) +
		event("content_block_start", `{"type":"content_block_start","index":2,"content_block":{"type":"tool_use",`+
			`"id":"w","name":"whole","input":{"a":[1]}}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":2}`) +
		event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"pause_turn"},`+
			`"usage":{"output_tokens":9}}`)
	s := scripted.Anthropic(t, scripted.Reply(scripted.Raw(stream), scripted.End()))
	a, h := generate(t, backends[1].model(s, options{}), ask("hi"))
	want := provider.Answer{
		Message: provider.Message{
			Role: provider.RoleAssistant, Content: "at once, and later",
			ToolCalls: []provider.ToolCall{{ID: "w", Name: "whole", Args: `{"a":[1]}`}},
		},
		Stop: provider.StopToolCalls, Usage: provider.Usage{Input: 321, Output: 9, Cached: 20},
	}
	if !reflect.DeepEqual(a, want) || h.said() != "at once, and later" {
		t.Errorf("answer %+v, heard %q", a, h.text)
	}
}
