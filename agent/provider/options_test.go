package provider_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func ptr[T any](v T) *T { return &v }

// optioned asks for all there is to ask for.
func optioned() provider.Request {
	r := ask("hi")
	r.Tools = []provider.Tool{{Name: "book", Parameters: json.RawMessage(`{"type":"object"}`), Strict: ptr(true)}}
	r.Choice = provider.Choice{Mode: provider.ChoiceTool, Name: "book"}
	r.Options = provider.Options{
		Parallel: ptr(false), TopP: ptr(0.5), PresencePenalty: ptr(0.0), FrequencyPenalty: ptr(-1.0),
		Seed:      ptr(int64(7)),
		LogitBias: map[string]int64{"50256": -100}, Effort: "low", Verbosity: "high", ServiceTier: "flex", User: "ann",
		SafetyIdentifier: "a1", CacheKey: "k", Metadata: map[string]string{"a": "b"},
		Format: &provider.Format{Name: "trip", Schema: json.RawMessage(`{"type":"object","b":1,"a":2}`),
			Strict: ptr(true)},
	}
	return r
}

// sent returns what of a body is not in the other one, as JSON.
func sent(t *testing.T, s *scripted.Server, n int, names ...string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(s.Requests()[n].Raw, &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, name := range names {
		if v, ok := all[name]; ok {
			found[name] = v
		}
	}
	return found
}

func wantSent(t *testing.T, got map[string]any, want string) {
	t.Helper()
	var w map[string]any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, w) {
		t.Errorf("sent %v\nwant %v", got, w)
	}
}

func TestOpenAIOptions(t *testing.T) {
	t.Parallel()
	names := []string{"parallel_tool_calls", "response_format", "top_p", "presence_penalty", "frequency_penalty",
		"seed", "logit_bias",
		"reasoning_effort", "verbosity", "service_tier", "user", "safety_identifier", "prompt_cache_key", "metadata",
		"tool_choice"}
	s := scripted.OpenAI(t, scripted.Reply(scripted.Text("a")), scripted.Reply(scripted.Text("b")),
		scripted.Reply(scripted.Text("c")))
	m := backends[0].model(s, options{})
	generate(t, m, optioned())
	wantSent(t, sent(t, s, 0, names...), `{
		"parallel_tool_calls":false,"top_p":0.5,"presence_penalty":0,"frequency_penalty":-1,"seed":7,
		"logit_bias":{"50256":-100},"reasoning_effort":"low","verbosity":"high","service_tier":"flex","user":"ann",
		"safety_identifier":"a1","prompt_cache_key":"k","metadata":{"a":"b"},
		"tool_choice":{"type":"function","function":{"name":"book"}},
		"response_format":{"type":"json_schema",
			"json_schema":{"name":"trip","schema":{"type":"object","b":1,"a":2},"strict":true}}}`)
	if tools, _ := json.Marshal(sent(t, s, 0, "tools")["tools"]); string(tools) !=
		`[{"function":{"name":"book","parameters":{"type":"object"},"strict":true},"type":"function"}]` {
		t.Errorf("tools %s", tools)
	}
	generate(t, m, ask("hi"))
	wantSent(t, sent(t, s, 1, names...), `{}`) // nothing that was not asked for
	r := ask("hi")
	r.Choice.Mode, r.Options.Parallel, r.Options.Format = provider.ChoiceRequired, ptr(true), &provider.Format{}
	generate(t, m, r) // where there are no tools the server refuses what is about them
	wantSent(t, sent(t, s, 2, names...), `{"response_format":{"type":"json_object"}}`)
}

func TestAnthropicOptions(t *testing.T) {
	t.Parallel()
	names := []string{"tool_choice", "output_config", "top_p", "metadata", "thinking", "temperature"}
	s := scripted.AnthropicFunc(t, func(scripted.Request) scripted.Step { return scripted.Reply(scripted.Text("a")) })
	m := thinker(s, 2000, false)
	r := optioned()
	r.Options = provider.Options{
		Parallel: ptr(false), TopP: ptr(0.5), PresencePenalty: ptr(0.0), Effort: "low", ServiceTier: "auto",
		User:   "ann",
		Format: &provider.Format{Name: "trip", Schema: json.RawMessage(`{"type":"object"}`)},
	}
	generate(t, m, r)
	wantSent(t, sent(t, s, 0, names...), `{
		"tool_choice":{"type":"tool","name":"book","disable_parallel_tool_use":true},"top_p":0.5,
		"metadata":{"user_id":"ann"},
		"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}}`)
	for i, tt := range []struct {
		choice provider.Choice
		want   string
	}{
		{provider.Choice{Mode: provider.ChoiceRequired}, `{"tool_choice":{"type":"any"}}`},
		{provider.Choice{Mode: provider.ChoiceNone},
			`{"tool_choice":{"type":"none"},"thinking":{"type":"enabled","budget_tokens":2000}}`},
		{provider.Choice{}, `{"thinking":{"type":"enabled","budget_tokens":2000}}`},
	} {
		r := optioned()
		r.Options, r.Choice = provider.Options{}, tt.choice
		generate(t, m, r)
		wantSent(t, sent(t, s, i+1, names...), tt.want)
	}
	cool := ask("hi")
	cool.Temperature = ptr(0.3) // what a caller asks for counts more than that the model may think
	generate(t, m, cool)
	wantSent(t, sent(t, s, 4, names...), `{"temperature":0.3}`)
}

// What Anthropic has no word for is refused by its name before anything is sent.
func TestAnthropicNamesWhatItDoesNotOffer(t *testing.T) {
	t.Parallel()
	s := scripted.Anthropic(t)
	m := backends[1].model(s, options{})
	for param, change := range map[string]func(*provider.Request){
		"seed":              func(r *provider.Request) { r.Options.Seed = ptr(int64(0)) },
		"logit_bias":        func(r *provider.Request) { r.Options.LogitBias = map[string]int64{"1": 1} },
		"presence_penalty":  func(r *provider.Request) { r.Options.PresencePenalty = ptr(0.1) },
		"frequency_penalty": func(r *provider.Request) { r.Options.FrequencyPenalty = ptr(0.1) },
		"verbosity":         func(r *provider.Request) { r.Options.Verbosity = "low" },
		"service_tier":      func(r *provider.Request) { r.Options.ServiceTier = "flex" },
		"metadata":          func(r *provider.Request) { r.Options.Metadata = map[string]string{"a": "b"} },
		"prompt_cache_key":  func(r *provider.Request) { r.Options.CacheKey = "k" },
		"reasoning_effort":  func(r *provider.Request) { r.Options.Effort = "minimal" },
		"response_format":   func(r *provider.Request) { r.Options.Format = &provider.Format{} },
		"temperature":       func(r *provider.Request) { r.Temperature = ptr(1.1) },
		"image_url.detail": func(r *provider.Request) {
			r.Messages[0].Parts = []provider.Part{{Image: &provider.Image{URL: "https://x", Detail: "low"}}}
		},
	} {
		r := ask("hi")
		change(&r)
		_, err := m.Generate(t.Context(), r, nil)
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.KindRequest || e.Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

// Images go to the model in the order they were shown in.
func TestImages(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.script(t, func(scripted.Request) scripted.Step { return scripted.Reply(scripted.Text("a cat")) })
		r := ask("")
		r.Messages[0].Content = "what is this? or this?"
		r.Messages[0].Parts = []provider.Part{
			{Text: "what is this?"}, {Image: &provider.Image{URL: "data:image/png;base64,iVBORw0KGgo="}},
			{Text: "or this?"}, {Image: &provider.Image{URL: "https://example.com/cat.png"}},
		}
		generate(t, b.model(s, options{}), r)
		var order []string
		for _, m := range s.Requests()[0].Messages {
			if len(m.Parts) == 0 {
				order = append(order, m.Content)
			}
			for _, p := range m.Parts {
				if p.Image != nil {
					p.Text = p.Image.URL
				}
				order = append(order, p.Text)
			}
		}
		want := []string{"what is this?", "data:image/png;base64,iVBORw0KGgo=", "or this?",
			"https://example.com/cat.png"}
		if !reflect.DeepEqual(order, want) {
			t.Errorf("the model sees %q", order)
		}
	})
}

// What a server says is wrong with a request is known by its name.
func TestTheServersParamIsKept(t *testing.T) {
	t.Parallel()
	s := scripted.OpenAI(t, scripted.Fail(400, "").Body(`{"error":{"message":"no","type":"invalid_request_error",`+
		`"param":"temperature","code":null}}`))
	_, err := backends[0].model(s, options{}).Generate(t.Context(), ask("hi"), nil)
	var e *provider.Error
	if !errors.As(err, &e) || e.Param != "temperature" {
		t.Errorf("%v", err)
	}
}
