package openai

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// What official clients send is understood, and what they send besides does no harm.
func TestCompletionRequest(t *testing.T) {
	r, err := ParseRequest([]byte(`{
		"model":"m","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},
		"max_tokens":5,"max_completion_tokens":7,"temperature":0,"stop":["a","b"],"user":"anna","n":1,
		"response_format":{"type":"text"},"tool_choice":"auto",
		"parallel_tool_calls":true,"store":false,"metadata":{},"seed":null,"top_p":1,
		"tools":[{"type":"function",
		          "function":{"name":"book","description":"books","parameters":{"type":"object"},"strict":true}},
		         {"type":"function","function":{"name":"pay","description":null,"parameters":null}}],
		"messages":[
			{"role":"system","content":"be brief"},
			{"role":"user","content":[{"type":"text","text":"two "},{"type":"text","text":"seats"}],"name":"anna"},
			{"role":"developer","content":"in English"},
			{"role":"assistant","content":null,"refusal":null,"tool_calls":[
				{"id":"x1","type":"function","function":{"name":"book","arguments":"{\"seats\":2}"}},
				{"id":"x2","type":"function","function":{"name":"pay","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"x2","content":"paid"},
			{"role":"tool","tool_call_id":"x1","content":"booked"},
			{"role":"assistant","content":"done"},
			{"role":"user","content":"thanks"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	zero, yes := 0.0, true
	c := r.completion
	want := []provider.Message{
		{Role: provider.RoleUser, Content: "two seats"},
		{Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{{ID: "x1", Name: "book", Args: `{"seats":2}`},
			{ID: "x2", Name: "pay", Args: `{}`}}},
		{Role: provider.RoleTool, ToolCallID: "x2", ToolName: "pay", Content: "paid"},
		{Role: provider.RoleTool, ToolCallID: "x1", ToolName: "book", Content: "booked"},
		{Role: provider.RoleAssistant, Content: "done"},
		{Role: provider.RoleUser, Content: "thanks"},
	}
	if !reflect.DeepEqual(c.Messages, want) {
		t.Errorf("messages %+v", c.Messages)
	}
	tools := []provider.Tool{
		{Name: "book", Description: "books", Parameters: json.RawMessage(`{"type":"object"}`), Strict: &yes},
		{Name: "pay", Parameters: json.RawMessage(anyParameters)},
	}
	if !reflect.DeepEqual(c.Tools, tools) {
		t.Errorf("tools %+v", c.Tools)
	}
	if c.Model != "m" || c.System != "be brief\n\nin English" || c.MaxTokens != 7 ||
		!reflect.DeepEqual(c.Temperature, &zero) ||
		!reflect.DeepEqual(c.Stop, []string{"a", "b"}) || r.user != "anna" || !r.stream || !r.includeUsage ||
		r.noTools() {
		t.Errorf("read %+v", r)
	}
	none, err := ParseRequest([]byte(`{"model":"m","stop":"x","tool_choice":"none",
		"messages":[{"role":"user","content":""}],
		"tools":[{"type":"function","function":{"name":"book"}}]}`))
	if err != nil || !none.noTools() || len(none.completion.Tools) != 0 ||
		!reflect.DeepEqual(none.completion.Stop, []string{"x"}) {
		t.Errorf("%v, %+v", err, none)
	}
}

// A mistake names the field it is in.
func TestCompletionMistakes(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	const asks = `{"role":"assistant","tool_calls":[` +
		`{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	with := func(fields string) string { return `{"model":"m","messages":[` + user + `],` + fields + `}` }
	say := func(messages string) string { return `{"model":"m","messages":[` + messages + `]}` }
	part := func(part string) string { return say(`{"role":"user","content":[` + part + `]}`) }
	tools := func(list string) string { return with(`"tools":` + list) }
	tool := func(function string) string { return `{"type":"function","function":` + function + `}` }
	format := func(f string) string { return with(`"response_format":` + f) }
	jsonSchema := func(f string) string { return format(`{"type":"json_schema","json_schema":` + f + `}`) }
	for body, param := range map[string]string{
		`{"messages":[` + user + `]}`:             "model",
		`{"model":"","messages":[` + user + `]}`:  "model",
		`{"model":1,"messages":[` + user + `]}`:   "model",
		`{"model":"m"}`:                           "messages",
		`{"model":"m","messages":null}`:           "messages",
		`{"model":"m","messages":{}}`:             "messages",
		`{"model":"m","Messages":[` + user + `]}`: "messages",
		say(``):                                  "messages",
		say(`null`):                              "messages[0]",
		say(user + `,"x"`):                       "messages[1]",
		say(`{"content":"x"}`):                   "messages[0].role",
		say(`{"role":"function","content":"x"}`): "messages[0].role",
		say(`{"role":"user"}`):                   "messages[0].content",
		say(`{"role":"user","content":null}`):    "messages[0].content",
		say(`{"role":"user","content":1}`):       "messages[0].content",
		part(`{"type":"input_audio"}`):           "messages[0].content[0].type",
		part(`{"type":"image_url"}`):             "messages[0].content[0].image_url",
		part(`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`): "messages[0].content[0].image_url.url",
		say(`{"role":"system","content":[{"type":"image_url"}]}`):             "messages[0].content[0].type",
		part(`{"type":"text","text":1}`):                                      "messages[0].content[0].text",
		say(`{"role":"assistant"}`):                                           "messages[0].content",
		say(`{"role":"assistant","tool_calls":{}}`):                           "messages[0].tool_calls",
		say(`{"role":"assistant","tool_calls":[{"id":"x"}]}`):                 "messages[0].tool_calls[0].function",
		say(`{"role":"assistant","tool_calls":[{"function":{}}]}`):            "messages[0].tool_calls[0]",
		say(asks):              "messages",
		say(asks + `,` + user): "messages[1]",
		say(asks + `,{"role":"tool","content":"x"}`):                    "messages[1].tool_call_id",
		say(asks + `,{"role":"tool","tool_call_id":"y","content":"x"}`): "messages[1].tool_call_id",
		say(`{"role":"tool","tool_call_id":"x","content":"x"}`):         "messages[0].tool_call_id",
		tools(`{}`):                                             "tools",
		tools(`[1]`):                                            "tools[0]",
		tools(`[{"type":"web_search"}]`):                        "tools[0].type",
		tools(`[{"type":"function"}]`):                          "tools[0].function",
		tools(`[` + tool(`{"name":"a.b"}`) + `]`):               "tools[0].function.name",
		tools(`[` + tool(`{"name":"a","parameters":[]}`) + `]`): "tools[0].function.parameters",
		tools(`[` + tool(`{"name":"a"}`) + `,` + tool(`{"name":"a"}`) + `]`): "tools[1].function.name",
		tools(`[` + strings.Repeat(`{},`, 128) + `{}]`):                      "tools",
		with(`"tool_choice":"sometimes"`):                                    "tool_choice",
		with(`"tool_choice":{"type":"allowed_tools"}`):                       "tool_choice",
		with(`"tool_choice":{"type":"function"}`):                            "tool_choice.function",
		with(`"tool_choice":{"type":"function","function":{}}`):              "tool_choice.function.name",
		with(`"n":2`):                                         "n",
		format(`{"type":"grammar"}`):                          "response_format.type",
		format(`{"type":"json_schema"}`):                      "response_format.json_schema",
		jsonSchema(`{"name":"a"}`):                            "response_format.json_schema.schema",
		jsonSchema(`{"name":"a b","schema":{}}`):              "response_format.json_schema.name",
		with(`"top_p":1.1`):                                   "top_p",
		with(`"presence_penalty":"x"`):                        "presence_penalty",
		with(`"frequency_penalty":-3`):                        "frequency_penalty",
		with(`"seed":1.5`):                                    "seed",
		with(`"logit_bias":[]`):                               "logit_bias",
		with(`"reasoning_effort":3`):                          "reasoning_effort",
		with(`"parallel_tool_calls":"yes"`):                   "parallel_tool_calls",
		with(`"metadata":{"a":1}`):                            "metadata",
		with(`"logprobs":true`):                               "logprobs",
		with(`"top_logprobs":3`):                              "top_logprobs",
		with(`"store":true`):                                  "store",
		with(`"modalities":["audio"]`):                        "modalities",
		with(`"audio":{}`):                                    "audio",
		with(`"prediction":{}`):                               "prediction",
		with(`"web_search_options":{}`):                       "web_search_options",
		with(`"top_k":4`):                                     "top_k",
		with(`"stream_options":{"include_obfuscation":true}`): "stream_options.include_obfuscation",
		format(`"text"`):                                      "response_format",
		with(`"functions":[]`):                                "functions",
		with(`"max_tokens":0`):                                "max_tokens",
		with(`"max_completion_tokens":1.5`):                   "max_completion_tokens",
		with(`"max_tokens":99999999999`):                      "max_tokens",
		with(`"temperature":2.1`):                             "temperature",
		with(`"temperature":"hot"`):                           "temperature",
		with(`"stop":["a","b","c","d","e"]`):                  "stop",
		with(`"stop":""`):                                     "stop",
		with(`"stop":[null]`):                                 "stop",
		with(`"stop":7`):                                      "stop",
		with(`"user":7`):                                      "user",
		with(`"stream":"true"`):                               "stream",
		with(`"stream_options":true`):                         "stream_options",
		with(`"stream_options":{"include_usage":1}`):          "stream_options.include_usage",
		``:   "",
		`[]`: "",
		`{"model":"m","model":"n","messages":[` + user + `]}`: "",
		`{"model":`: "",
	} {
		_, err := ParseRequest([]byte(body))
		if code := registry.AsError(err).Code; err == nil || code != registry.CodeInvalidRequest {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var fault *paramError
		got := ""
		if errors.As(err, &fault) {
			got = fault.param
		}
		if got != param {
			t.Errorf("%s: blames %q, want %q: %v", body, got, param, err)
		}
	}
}

// FuzzCompletionBody: whatever arrives, nothing panics, every refusal is a coded error, and what is accepted is a
// conversation a model takes: results follow their calls, and names are possible ones.
func FuzzCompletionBody(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","messages":[null]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}],"stop":["x"],
			"temperature":1e0}`,
		`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]},
			{"role":"tool","tool_call_id":"a","content":""}]}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],
			"tools":[{"type":"function","function":{"name":"a","parameters":{}}}],"tool_choice":"none"}`,
		`{"model":"m","messages":[{"role":"user","content":"\ud800"}],"n":1,"max_tokens":1,
			"stream_options":{"include_usage":true}}`,
		strings.Repeat("[", 70), "\xff", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stop":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			if code := registry.AsError(err).Code; code != registry.CodeInvalidRequest {
				t.Fatalf("refused with %v", err)
			}
			if status, told := errorBodyOf(err); status != 400 || told.Error.Message == "" {
				t.Fatalf("told as %d %+v", status, told)
			}
			return
		}
		var plain struct{ Model string }
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted, but encoding/json says %v", err)
		}
		c := r.completion
		if c.Model == "" || len(c.Messages) == 0 || len(c.Stop) > maxStops || len(c.Tools) > maxCallerTools ||
			c.MaxTokens < 0 {
			t.Fatalf("accepted %+v", c)
		}
		open := make(map[string]bool)
		for _, m := range c.Messages {
			switch {
			case m.Role == provider.RoleTool && (!open[m.ToolCallID] || m.ToolName == ""),
				m.Role != provider.RoleTool && len(open) > 0:
				t.Fatalf("calls and results do not belong together: %+v", c.Messages)
			case m.Role == provider.RoleTool:
				delete(open, m.ToolCallID)
			case m.Role != provider.RoleUser && m.Role != provider.RoleAssistant:
				t.Fatalf("role %q", m.Role)
			}
			for _, call := range m.ToolCalls {
				open[call.ID] = true
			}
		}
		for _, tool := range c.Tools {
			if !modelToolName.MatchString(tool.Name) || !json.Valid(tool.Parameters) || tool.Parameters[0] != '{' {
				t.Fatalf("tool %+v", tool)
			}
		}
		if len(open) > 0 {
			t.Fatalf("calls without results: %+v", c.Messages)
		}
	})
}
