package provider_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func openAI(s *scripted.Server) provider.Model { return backends[0].model(s, options{}) }

// delta is an event with one delta, as a server may send it.
func delta(json string) string {
	return `data: {"choices":[{"index":0,"delta":` + json + `}]}` + "\n\n"
}

func calls(json string) string { return delta(`{"tool_calls":[` + json + `]}`) }

const toolCallsEnd = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"

// What servers make of the pieces of tool calls.
func TestOpenAICallsOfOtherServers(t *testing.T) {
	t.Parallel()
	one := provider.ToolCall{ID: "x", Name: "echo", Args: `{"a":1}`}
	two := provider.ToolCall{ID: "y", Name: "ping", Args: `{"b":2}`}
	anyID := func(c provider.ToolCall) provider.ToolCall { c.ID = ""; return c }
	for name, c := range map[string]struct {
		stream []string
		want   []provider.ToolCall // without an id: it has some
	}{
		"no index": {[]string{
			calls(`{"id":"x","function":{"name":"echo","arguments":"{\"a\""}}`),
			calls(`{"function":{"arguments":":1}"}}`),
			calls(`{"id":"y","function":{"name":"ping","arguments":"{\"b\""}}`),
			calls(`{"function":{"arguments":":2}"}}`),
		}, []provider.ToolCall{one, two}},
		"no index, interleaved by id": {[]string{
			calls(`{"id":"x","function":{"name":"echo","arguments":"{\"a\""}}`),
			calls(`{"id":"y","function":{"name":"ping","arguments":"{\"b\""}}`),
			calls(`{"id":"x","function":{"arguments":":1}"}}`), calls(`{"id":"y","function":{"arguments":":2}"}}`),
		}, []provider.ToolCall{one, two}},
		"whole calls at the same index": {[]string{
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":"{\"a\":1}"}}`),
			calls(`{"index":0,"id":"y","function":{"name":"ping","arguments":"{\"b\":2}"}}`),
		}, []provider.ToolCall{one, two}},
		"whole calls in one delta": {[]string{
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":"{\"a\":1}"}},{"index":1,"id":"y",` +
				`"function":{"name":"ping","arguments":"{\"b\":2}"}}`),
		}, []provider.ToolCall{one, two}},
		"whole calls without index and id": {[]string{
			calls(`{"function":{"name":"echo","arguments":"{\"a\":1}"}}`),
			calls(`{"function":{"name":"ping","arguments":"{\"b\":2}"}}`),
		}, []provider.ToolCall{anyID(one), anyID(two)}},
		"id and name repeated": {[]string{
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":""}}`),
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":"{\"a\""}}`),
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":":1}"}}`),
		}, []provider.ToolCall{one}},
		"name repeated without id": {[]string{
			calls(`{"index":0,"function":{"name":"echo","arguments":"{\"a\""}}`),
			calls(`{"index":0,"function":{"name":"echo","arguments":":1}"}}`),
		}, []provider.ToolCall{anyID(one)}},
		"another id with every piece": {[]string{
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":""}}`),
			calls(`{"index":0,"id":"p","function":{"arguments":"{\"a\""}}`),
			calls(`{"index":0,"id":"q","function":{"arguments":":1}"}}`),
		}, []provider.ToolCall{one}},
		"the same id for all calls": {[]string{
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":"{\"a\":1}"}}`),
			calls(`{"index":1,"id":"x","function":{"name":"ping","arguments":"{\"b\":2}"}}`),
		}, []provider.ToolCall{one, anyID(two)}},
		"name in pieces, id late": {[]string{
			calls(`{"index":0,"function":{"name":"ec"}}`), calls(`{"index":0,"function":{"name":"ho"}}`),
			calls(`{"index":0,"id":"x","function":{"arguments":"{\"a\":1}"}}`),
		}, []provider.ToolCall{one}},
		"indexes from three, in any order": {[]string{
			calls(`{"index":4,"id":"x","function":{"name":"echo","arguments":"{\"a\""}}`),
			calls(`{"index":3,"id":"y","function":{"name":"ping","arguments":"{\"b\""}}`),
			calls(`{"index":4,"function":{"arguments":":1}"}}`), calls(`{"index":3,"function":{"arguments":":2}"}}`),
		}, []provider.ToolCall{one, two}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(strings.Join(c.stream, "")+toolCallsEnd),
				scripted.End()))
			a, _ := generate(t, openAI(s), ask("hi"))
			got := slices.Clone(a.Message.ToolCalls)
			if len(got) != len(c.want) {
				t.Fatalf("calls %+v", got)
			}
			ids := map[string]bool{}
			for i := range got {
				if ids[got[i].ID] || got[i].ID == "" || len(got[i].ID) > 40 {
					t.Errorf("id %q", got[i].ID)
				}
				ids[got[i].ID] = true
				if c.want[i].ID == "" {
					got[i].ID = ""
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("calls %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestOpenAIReasoningGoesBackAsItCame(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"reasoning_content", "reasoning"} {
		stream := delta(`{"`+field+`":"I "}`) + delta(`{"content":null,"`+field+`":"see"}`) +
			delta(`{"`+field+`":null}`) +
			calls(`{"index":0,"id":"x","function":{"name":"echo","arguments":"{}"}}`) + toolCallsEnd
		s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(stream), scripted.End()), scripted.Reply(),
			scripted.Reply())
		m := openAI(s)
		a, h := generate(t, m, ask("hi"))
		if h.thought() != "I see" {
			t.Fatalf("%s: thought %q", field, h.thought())
		}
		// Within its turn it is sent back, after it no more.
		turn := []provider.Message{user("hi"), a.Message, {Role: provider.RoleTool, ToolCallID: "x", Content: "hi"}}
		generate(t, m, provider.Request{Messages: turn})
		generate(t, m, provider.Request{Messages: append(turn,
			provider.Message{Role: provider.RoleAssistant, Content: "y"}, user("z"))})
		for i, want := range []string{"", "I see", ""} {
			var body struct {
				Messages []map[string]any `json:"messages"`
			}
			if err := json.Unmarshal(s.Requests()[i].Raw, &body); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range body.Messages {
				if text, ok := m[field].(string); ok {
					got += text
				}
			}
			if got != want {
				t.Errorf("%s: request %d brings back %q", field, i, got)
			}
		}
	}
}

func TestOpenAIOddities(t *testing.T) {
	t.Parallel()
	const end = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for name, c := range map[string]struct {
		stream string
		want   provider.Answer
	}{
		"usage with every piece": {
			`data: {"choices":[{"index":0,"delta":{"content":"a"}}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":1}}` + "\n\n" +
				`data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":2,` +
				`"prompt_tokens_details":{"cached_tokens":1}}}` + "\n\n",
			provider.Answer{Message: provider.Message{Content: "ab"}, Stop: provider.StopEnd,
				Usage: provider.Usage{Input: 3, Output: 2, Cached: 1}},
		},
		"tokens below zero": {
			`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":-1}}` + "\n\n",
			provider.Answer{Message: provider.Message{Content: "a"}, Stop: provider.StopEnd,
				Usage: provider.Usage{Input: 3}},
		},
		"more tokens than a day could add up": {
			`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":3,"completion_tokens":9007199254740990}}` + "\n\n",
			provider.Answer{Message: provider.Message{Content: "a"}, Stop: provider.StopEnd,
				Usage: provider.Usage{Input: 3}},
		},
		"carriage returns and no blank": {
			"data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\r\n\r\n" + end + "data: [DONE]\r\n\r\n",
			provider.Answer{Message: provider.Message{Content: "a"}, Stop: provider.StopEnd},
		},
		"a refusal": {
			delta(`{"refusal":"I must not."}`) + strings.Replace(end, "{}", `{"refusal":"!"}`, 1),
			provider.Answer{Message: provider.Message{Content: "I must not.!"}, Stop: provider.StopRefusal},
		},
		"an unknown reason, other choices": {
			delta(`{"content":"a"}`) + `data: {"choices":[{"index":1,"delta":{"content":"other"}}]}` + "\n\n" +
				strings.Replace(end, "stop", "eos_token", 1),
			provider.Answer{Message: provider.Message{Content: "a"}, Stop: provider.StopEnd},
		},
		"garbage after the end": {
			delta(`{"content":"a"}`) + end + "data: {oops\n\n",
			provider.Answer{Message: provider.Message{Content: "a"}, Stop: provider.StopEnd},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(c.stream), scripted.End()))
			got, _ := generate(t, openAI(s), ask("hi"))
			c.want.Message.Role = provider.RoleAssistant
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("answer %+v, want %+v", got, c.want)
			}
		})
	}
}

// An answer that its server gave up is not one that ended.
func TestOpenAIAnswersGivenUp(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"insufficient_system_resource", "error"} {
		end := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n"
		s := scripted.OpenAI(t, scripted.Reply(scripted.Text("a"), scripted.Raw(end), scripted.End()))
		fail(t, openAI(s), provider.KindBroken)
	}
	s := scripted.OpenAI(t, scripted.Reply(scripted.Text("a"),
		scripted.Raw(`data: {"error":{"message":"quota","code":429}}`+"\n\n"), scripted.End()))
	if _, e, _ := fail(t, openAI(s), provider.KindBroken); e.Status != 429 {
		t.Errorf("error %+v", e)
	}
}

// roundTripper answers without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOpenAIBoundOfAnAnswer(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"": "max_completion_tokens", "https://eu.api.openai.com/v1": "max_completion_tokens",
		"https://me.openai.azure.com/openai/v1": "max_completion_tokens",
		"https://api.deepseek.com":              "max_tokens", "http://localhost:11434/v1": "max_tokens",
		"https://notapi.openai.com.example.org/v1": "max_tokens",
	} {
		for limit, set := range map[int]bool{0: false, 9: true} {
			var body map[string]any
			var path string
			m := provider.NewOpenAI(provider.Config{Name: "m", BaseURL: base, MaxTokens: limit,
				HTTPClient: &http.Client{
					Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						path = r.URL.Path
						if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
							return nil, err
						}
						return &http.Response{StatusCode: 400, Body: io.NopCloser(strings.NewReader("no"))}, nil
					}),
				}})
			fail(t, m, provider.KindRequest)
			delete(body, "model")
			if _, ok := body[want]; ok != set || !strings.HasSuffix(path, "/chat/completions") ||
				body["stream"] != true {
				t.Errorf("%q: %s gets %v", base, path, body)
			}
			for _, name := range []string{"max_tokens", "max_completion_tokens"} {
				if _, ok := body[name]; ok && name != want {
					t.Errorf("%q gets %s", base, name)
				}
			}
		}
	}
}
