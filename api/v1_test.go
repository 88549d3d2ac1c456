package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

const (
	completionsPath = "/v1/chat/completions"
	hello           = `{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`
)

// answering is a turn of two iterations, with a tool of the device between them.
func answering(calls ...provider.ToolCall) *scripted {
	return &scripted{complete: func(_ context.Context, _ chat.Completion, emit func(chat.Event)) (chat.Reply,
		[]provider.ToolCall, error) {
		for _, e := range []chat.Event{
			{Type: chat.EventThinking, Content: "a tool"},
			{Type: chat.EventChunk, Content: "Let me look. "},
			{Type: chat.EventToolCall, ID: "c1", Name: "locate", Status: chat.StatusExecuting},
			{Type: chat.EventToolResult, ID: "c1", Name: "locate", Output: "at home", Status: chat.StatusCompleted},
			{Type: chat.EventChunk, Content: "<home>"},
			{Type: chat.EventChunkReset},
			{Type: chat.EventDone, FullResponse: "Let me look. <home>"},
		} {
			emit(e)
		}
		stop := provider.StopEnd
		if len(calls) > 0 {
			stop = provider.StopToolCalls
		}
		return chat.Reply{FullResponse: "Let me look. <home>", Usage: provider.Usage{Input: 12, Output: 5},
			Stop: stop}, calls, nil
	}}
}

func TestCompletion(t *testing.T) {
	a := answering()
	f := talking(t, a)
	golden(t, "answer", f.post(completionsPath, hello).body,
		`{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"swift",`+
			`"choices":[{"index":0,"message":{"role":"assistant","content":"Let me look. <home>",`+
			`"reasoning_content":"a tool","refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}`)
	asked := <-a.completed
	if asked.Model != "swift" || asked.Turn == "" || asked.Key != (registry.Key{Tenant: registry.DefaultTenant}) ||
		asked.Caller.Tenant != registry.DefaultTenant || len(asked.Messages) != 1 || asked.Messages[0].Content != "hi" {
		t.Errorf("asked %+v", asked)
	}
}

const chunkHead = `data: {"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"swift","choices":[`

func TestCompletionStream(t *testing.T) {
	f := talking(t, answering())
	r := f.post(completionsPath, strings.TrimSuffix(hello, "}")+`,"stream":true}`)
	const want = chunkHead +
		`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

` + chunkHead + `{"index":0,"delta":{"reasoning_content":"a tool"},"logprobs":null,"finish_reason":null}]}

` + chunkHead + `{"index":0,"delta":{"content":"Let me look. "},"logprobs":null,"finish_reason":null}]}

` + chunkHead + `{"index":0,"delta":{"content":"<home>"},"logprobs":null,"finish_reason":null}]}

` + chunkHead + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

data: [DONE]`
	golden(t, "stream", r.body, want)
	if r.header.Get("Content-Type") != "text/event-stream" || r.header.Get("X-Accel-Buffering") != "no" ||
		!strings.Contains(r.header.Get("Cache-Control"), "no-cache") {
		t.Errorf("headers %v", r.header)
	}
}

var callersCalls = []provider.ToolCall{{ID: "x1", Name: "book", Args: `{"seats":2}`},
	{ID: "x2", Name: "pay", Args: `{`}}

// The caller's own tools are the caller's to run; the device's do not show.
func TestCompletionCallsTheCallersTools(t *testing.T) {
	f := talking(t, answering(callersCalls...))
	const shown = `"type":"function","function":{"name":"book","arguments":"{\"seats\":2}"}}`
	const shown2 = `"type":"function","function":{"name":"pay","arguments":"{"}}`
	golden(t, "answer", f.post(completionsPath, hello).body,
		`{"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"swift",`+
			`"choices":[{"index":0,"message":{"role":"assistant","content":"Let me look. <home>",`+
			`"reasoning_content":"a tool","tool_calls":[{"id":"x1",`+shown+`,{"id":"x2",`+shown2+`],"refusal":null},`+
			`"logprobs":null,"finish_reason":"tool_calls"}],`+
			`"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}`)

	r := f.post(completionsPath, strings.TrimSuffix(hello,
		"}")+`,"stream":true,"stream_options":{"include_usage":true}}`)
	const tail = chunkHead + `{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x1",` + shown +
		`]},"logprobs":null,"finish_reason":null}],"usage":null}

` + chunkHead + `{"index":0,"delta":{"tool_calls":[{"index":1,"id":"x2",` + shown2 +
		`]},"logprobs":null,"finish_reason":null}],"usage":null}

` + chunkHead + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}

` + chunkHead + `],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}

data: [DONE]`
	text := string(r.body)
	calls := strings.Index(text, `"tool_calls":[`)
	golden(t, "the end of the stream", []byte(text[strings.LastIndex(text[:calls], "data: "):]), tail)
}

// A model that says nothing but calls has no content, which is null.
func TestCompletionWithoutText(t *testing.T) {
	f := talking(t, &scripted{complete: func(_ context.Context, c chat.Completion, _ func(chat.Event)) (chat.Reply,
		[]provider.ToolCall, error) {
		if len(c.Tools) == 0 {
			return chat.Reply{Stop: provider.StopLength}, nil, nil
		}
		return chat.Reply{Stop: provider.StopToolCalls}, callersCalls[:1], nil
	}})
	r := f.post(completionsPath, strings.TrimSuffix(hello,
		"}")+`,"tools":[{"type":"function","function":{"name":"book"}}]}`)
	if !strings.Contains(string(r.body), `"content":null`) {
		t.Errorf("body %s", r.body)
	}
	r = f.post(completionsPath, hello)
	if !strings.Contains(string(r.body), `"content":""`) || !strings.Contains(string(r.body),
		`"finish_reason":"length"`) {
		t.Errorf("body %s", r.body)
	}
}

func TestCompletionFailures(t *testing.T) {
	for _, tt := range []struct {
		err        *chat.Error
		status     int
		kind, code string
	}{
		{&chat.Error{Code: chat.CodeNoUserMessage, Message: "m"}, 400, "invalid_request_error",
			"invalid_request_error"},
		{&chat.Error{Code: chat.CodeAuth, Message: "m"}, 502, "server_error", "provider_error"},
		{&chat.Error{Code: chat.CodeAgent, Message: "m"}, 502, "server_error", "agent_error"},
		{&chat.Error{Code: chat.CodeAgent, Message: "m", Cause: errAway}, 503, "server_error", "store_unavailable"},
		{&chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindFailure}}, 502,
			"server_error", "provider_error"},
		{&chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindRequest}}, 400,
			"invalid_request_error", "invalid_request_error"},
		{&chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindLimit,
			RetryAfter: 9 * time.Second}}, 429, "rate_limit_error", "rate_limit_exceeded"},
		{&chat.Error{Code: chat.CodeProvider, Message: "m", Cause: &provider.Error{Kind: provider.KindFailure,
			Status: 529, RetryAfter: 9 * time.Second}}, 502, "server_error", "provider_error"},
		{&chat.Error{Code: chat.CodeSessionBusy, Message: "m", Cause: &registry.Error{Code: registry.CodeBusy,
			RetryAfter: 9 * time.Second}}, 429, "rate_limit_error", "busy"},
	} {
		f := talking(t, fails(tt.err))
		for _, body := range []string{hello, strings.TrimSuffix(hello, "}") + `,"stream":true}`} {
			r := f.post(completionsPath, body)
			if got := decode[failure](r, tt.status); got.Error.Type != tt.kind || got.Error.Code != tt.code ||
				got.Error.Message == "" {
				t.Errorf("%v: %s", tt.err, r.body)
			}
			advised := tt.err.RetryAfter() == 9*time.Second
			if again := r.header.Get("Retry-After"); advised && again != "9" ||
				(again != "") != (advised || tt.status == 503) {
				t.Errorf("%v: Retry-After %q", tt.err, again)
			}
			if tt.status == 429 && r.header.Get("X-Should-Retry") != "" {
				t.Errorf("%v: X-Should-Retry %q", tt.err, r.header.Get("X-Should-Retry"))
			}
		}
	}
	f := talking(t, fails(&chat.Error{Code: chat.CodeProvider, Message: "gone"},
		chat.Event{Type: chat.EventChunk, Content: "We"}))
	r := f.post(completionsPath, strings.TrimSuffix(hello, "}")+`,"stream":true}`)
	golden(t, "stream", r.body,
		chunkHead+`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

`+chunkHead+`{"index":0,"delta":{"content":"We"},"logprobs":null,"finish_reason":null}]}

data: {"error":{"message":"PROVIDER_ERROR: gone","type":"server_error","param":null,"code":"provider_error"}}`)
	odd := talking(t, &scripted{complete: func(context.Context, chat.Completion, func(chat.Event)) (chat.Reply,
		[]provider.ToolCall, error) {
		return chat.Reply{}, nil, errors.New("dial 10.0.0.1")
	}})
	if r := odd.post(completionsPath, hello); r.status != 500 || strings.Contains(string(r.body), "10.0.0.1") {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

// Whose tools join in.
func TestCompletionHelper(t *testing.T) {
	a := answering()
	f := talking(t, a)
	for _, s := range []struct{ id, user string }{{"a1", "anna"}, {"b1", "ben"}, {"b2", "ben"}, {"anna", "carl"},
		{"dora", "carl"}, {"own", "own"}} {
		named := session(s.id)
		named.UserID = s.user
		f.connect(0, named, echo)
	}
	f.connect(0, session("gone"), echo).gone()
	for _, tt := range []struct {
		header, fields string
		status         int
		want           string // the session; or the code
	}{
		{"", ``, 200, ""},
		{"s1", ``, 200, "s1"},
		{"s1", `,"user":"ben"`, 200, "s1"},
		{"s1", `,"tool_choice":"none"`, 200, ""},
		{"", `,"user":"anna"`, 200, "a1"},
		{"", `,"user":"anna","tool_choice":"none"`, 200, ""},
		{"", `,"user":"b1"`, 200, ""},
		{"", `,"user":"dora"`, 200, ""}, // the session of somebody who chose another's name for its id
		{"", `,"user":"s1"`, 200, "s1"},
		{"", `,"user":"own"`, 200, "own"},
		{"b1", `,"user":"b1"`, 200, "b1"},
		{"", `,"user":"nobody at all"`, 200, ""},
		{"", `,"user":"gone"`, 200, ""},
		{"", `,"user":null`, 200, ""},
		{"", `,"user":"ben"`, 409, "ambiguous_target"},
		{"nobody", ``, 404, "session_not_found"},
		{"a b", ``, 404, "session_not_found"},
		{"nobody", `,"tool_choice":"none"`, 404, "session_not_found"},
		{"gone", ``, 409, "not_connected"},
	} {
		header := http.Header{}
		if tt.header != "" {
			header["X-Farhand-Session"] = []string{tt.header}
		}
		r := f.send(request{method: http.MethodPost, path: completionsPath, body: strings.TrimSuffix(hello, "}") +
			tt.fields + "}", header: header})
		if tt.status != 200 {
			got := decode[failure](r, tt.status)
			if got.Error.Code != tt.want {
				t.Errorf("%+v: %s", tt, r.body)
			}
			if tt.want == "ambiguous_target" && !(strings.Contains(got.Error.Message, "X-Farhand-Session") &&
				strings.Contains(got.Error.Message, "b1, b2")) {
				t.Errorf("message %s", got.Error.Message)
			}
			continue
		}
		if r.status != 200 {
			t.Errorf("%+v: status %d: %s", tt, r.status, r.body)
			continue
		}
		if got := (<-a.completed).Key; got.Session != tt.want || got.Tenant != registry.DefaultTenant {
			t.Errorf("%+v: the tools of %v", tt, got)
		}
	}
}

func TestModels(t *testing.T) {
	f := talking(t, answering())
	const swift = `{"id":"swift","object":"model","created":0,"owned_by":"farhand"}`
	const large = `{"id":"maker/large","object":"model","created":0,"owned_by":"farhand"}`
	r := f.get("/v1/models")
	golden(t, "models", r.body, `{"object":"list","data":[`+swift+`,`+large+`]}`)
	again := f.send(request{path: "/v1/models", header: http.Header{"If-None-Match": {r.header.Get("Etag")}}})
	if again.status != http.StatusNotModified {
		t.Errorf("status %d", again.status)
	}
	for path, want := range map[string]string{"swift": swift, "farhand": swift, "maker/large": large,
		"maker%2Flarge": large, "swift?api-version=1": swift} {
		golden(t, path, f.get("/v1/models/"+path).body, want)
	}
	for _, name := range []string{"gpt-9", "Swift", "", "swift/"} {
		if got := decode[failure](f.get("/v1/models/"+name), 404); got.Error.Code != "model_not_found" ||
			got.Error.Param != "model" {
			t.Errorf("%q: %+v", name, got)
		}
	}
	got := decode[failure](f.post(completionsPath, `{"model":"gpt-9","messages":[{"role":"user","content":"hi"}]}`),
		404)
	if got.Error.Code != "model_not_found" || got.Error.Param != "model" || got.Error.Type != "invalid_request_error" {
		t.Errorf("%+v", got)
	}
}

// What guards /api guards /v1, and is told as OpenAI's clients expect.
func TestV1IsGuarded(t *testing.T) {
	a := answering()
	f := talking(t, a)
	for _, r := range []request{
		{method: http.MethodPost, path: completionsPath, body: hello}, {path: "/v1/models"},
		{path: "/v1/models/swift"}, {path: "/v1/nothing"},
	} {
		for _, authorization := range [][]string{nil, {"Bearer wrong"}} {
			r.header = http.Header{"Authorization": authorization}
			got := f.send(r)
			if e := decode[failure](got, 401).Error; e.Code != "invalid_api_key" ||
				e.Type != "invalid_request_error" || got.header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%s: %s", r.path, got.body)
			}
		}
		r.header = http.Header{"Origin": {"https://evil.example"}}
		if e := decode[failure](f.send(r), 403).Error; e.Code != "forbidden" {
			t.Errorf("%s: %+v", r.path, e)
		}
	}
	if len(a.completed) != 0 {
		t.Error("the agent was asked")
	}
	if e := decode[failure](f.get("/v1/embeddings"), 404).Error; e.Code != "not_found" {
		t.Errorf("%+v", e)
	}
	if r := f.get(completionsPath); decode[failure](r, 405).Error.Code != "method_not_allowed" ||
		r.header.Get("Allow") != "POST" {
		t.Errorf("%v: %s", r.header, r.body)
	}
	large := `{"model":"` + strings.Repeat("x", 2<<20) + `"}`
	if e := decode[failure](f.post(completionsPath, large), 413).Error; e.Code != "payload_too_large" {
		t.Errorf("%+v", e)
	}
	wantProblem(f.send(request{method: http.MethodPost, path: messagesOfS1, body: `{"content":"hi"}`,
		header: http.Header{"Authorization": nil}}), 401, registry.CodeUnauthenticated)
}

// A console on an allowed origin can use OpenAI's client library, which sends headers of its own.
func TestV1FromABrowser(t *testing.T) {
	f := talking(t, answering())
	const console = "https://console.example.com"
	for path, any := range map[string]bool{completionsPath: true, messagesOfS1: false} {
		req, err := http.NewRequest(http.MethodOptions, f.pods[0].server.URL+path, nil)
		f.must(err)
		req.Header.Set("Origin", console)
		req.Header.Set("Access-Control-Request-Method", "POST")
		resp, err := f.pods[0].server.Client().Do(req)
		f.must(err)
		resp.Body.Close()
		allowed := resp.Header.Get("Access-Control-Allow-Headers")
		if resp.StatusCode != http.StatusNoContent || !strings.Contains(allowed, "Authorization") ||
			!strings.Contains(allowed, "X-Farhand-Session") ||
			strings.Contains(allowed, "*") != any {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	r := f.send(request{method: http.MethodPost, path: completionsPath, body: hello,
		header: http.Header{"Origin": {console}, "X-Stainless-Lang": {"js"}}})
	if r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != console {
		t.Errorf("%d %v", r.status, r.header)
	}
}
