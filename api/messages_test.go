package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// An operator may keep the system prompt to himself.
func TestDebugCanBeSwitchedOff(t *testing.T) {
	a := oneTurn()
	f := newFleet(t, setup{change: func(c *api.Config) { a.join(c); c.IgnoreDebug = true }})
	f.connect(0, session("s1"), echo)
	for _, body := range []string{`{"content":"hi","debug":true}`, `{"content":"hi","debug":true,"stream":true}`,
		`{"regenerate":true,"debug":true}`} {
		if r := f.post(messagesOfS1, body); r.status != 200 {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
		if asked := <-a.asked; asked.Debug {
			t.Errorf("%s asked %+v", body, asked)
		}
	}
}

// oneTurn is a turn with everything that can happen in it.
func oneTurn() *scripted {
	return &scripted{ask: func(_ context.Context, _ chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
		for _, e := range []chat.Event{
			{Type: chat.EventDebugPrompt, Messages: []provider.Message{{Role: provider.RoleUser, Content: "hi"}},
				EstimatedTokens: 3},
			{Type: chat.EventThinking, Content: "a tool"},
			{Type: chat.EventChunk, Content: "Let me <look>\n"},
			{Type: chat.EventToolCall, ID: "c1", Name: "locate", Args: json.RawMessage(`{"fast":true}`),
				Status: chat.StatusExecuting},
			{Type: chat.EventToolResult, ID: "c1", Name: "locate", Output: "at home", Status: chat.StatusCompleted},
			{Type: chat.EventToolCall, ID: "c2", Name: "snap", Args: json.RawMessage(`{"broken`),
				Status: chat.StatusFailed},
			{Type: chat.EventToolResult, ID: "c2", Name: "snap", Output: "not JSON", Status: chat.StatusFailed,
				Parts: registry.WithoutData(picture)},
			{Type: chat.EventTitle, Title: "Where I am"},
			{Type: chat.EventChunkReset},
			{Type: chat.EventDone, FullResponse: "You are at home."},
		} {
			emit(e)
		}
		return chat.Reply{
			Turn: "t1", FullResponse: "You are at home.", Usage: provider.Usage{Input: 12, Output: 5},
			Stop: provider.StopEnd,
			Calls: []chat.CallReport{
				{ID: "c1", Name: "locate", Args: json.RawMessage(`{"fast":true}`), Status: chat.StatusCompleted,
					Output: "at home"},
				{ID: "c2", Name: "snap", Args: json.RawMessage(`{"broken`), Status: chat.StatusFailed,
					Output: "not JSON", Parts: registry.WithoutData(picture)},
			},
			MessageCount: 6, Title: "Where I am", Duration: 1500 * time.Millisecond,
		}, nil
	}}
}

const messagesOfS1 = "/api/sessions/s1/messages"

func TestMessage(t *testing.T) {
	a := oneTurn()
	f := talking(t, a)
	r := f.post(messagesOfS1, `{"content":"where am I?","debug":true,"results":"plain"}`)
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	golden(t, "answer", r.body, `{"turn_id":"t1","session_id":"s1","full_response":"You are at home.","tool_calls":[`+
		`{"id":"c1","name":"locate","args":{"fast":true},"status":"completed","output":"at home"},`+
		`{"id":"c2","name":"snap","args":"{\"broken","status":"failed","output":"not JSON","parts":`+
		pictureShown+`}],"stop_reason":"stop",`+
		`"usage":{"input_tokens":12,"output_tokens":5},"message_count":6,"title":"Where I am","duration_ms":1500}`)
	ask := <-a.asked
	if ask.Key != (registry.Key{Tenant: registry.DefaultTenant, Session: "s1"}) || ask.Content != "where am I?" ||
		!ask.Debug ||
		ask.Regenerate || ask.Format != chat.FormatPlain || ask.Caller.Tenant != registry.DefaultTenant ||
		ask.Kind != "" {
		t.Errorf("asked %+v", ask)
	}
	f.post(messagesOfS1, `{"content":"hi","context":"group"}`)
	if ask := <-a.asked; ask.Kind != policy.Group {
		t.Errorf("asked %+v", ask)
	}
	f.post(messagesOfS1, `{"regenerate":true,"stream":false}`)
	if ask := <-a.asked; !ask.Regenerate || ask.Content != "" || ask.Debug {
		t.Errorf("asked %+v", ask)
	}
}

// A turn in which nothing was called still has a list of calls.
func TestMessageWithoutCalls(t *testing.T) {
	f := talking(t, &scripted{ask: func(context.Context, chat.Ask, func(chat.Event)) (chat.Reply, error) {
		return chat.Reply{Turn: "t1", FullResponse: "hello", MessageCount: 2}, nil
	}})
	golden(t, "answer", f.post(messagesOfS1, `{"content":"hi"}`).body,
		`{"turn_id":"t1","session_id":"s1","full_response":"hello",`+
			`"tool_calls":[],"usage":{"input_tokens":0,"output_tokens":0},"message_count":2,"duration_ms":0}`)
}

func TestMessageStream(t *testing.T) {
	f := talking(t, oneTurn())
	const want = `event: debug_prompt
data: {"type":"debug_prompt","messages":[{"role":"user","content":"hi"}],"estimated_tokens":3}

event: thinking
data: {"type":"thinking","content":"a tool"}

event: chunk
data: {"type":"chunk","content":"Let me <look>\n"}

event: tool_call
data: {"type":"tool_call","id":"c1","name":"locate","args":{"fast":true},"status":"executing"}

event: tool_result
data: {"type":"tool_result","id":"c1","name":"locate","output":"at home","status":"completed"}

event: tool_call
data: {"type":"tool_call","id":"c2","name":"snap","args":"{\"broken","status":"failed"}

event: tool_result
data: {"type":"tool_result","id":"c2","name":"snap","output":"not JSON","status":"failed","parts":` + pictureShown + `}

event: title_updated
data: {"type":"title_updated","title":"Where I am"}

event: chunk_reset
data: {"type":"chunk_reset"}

event: done
data: {"type":"done","full_response":"You are at home.","turn_id":"t1","stop_reason":"stop",` +
		`"usage":{"input_tokens":12,"output_tokens":5},"message_count":6,"duration_ms":1500}`
	for _, r := range []request{
		{body: `{"content":"where am I?","stream":true}`},
		{body: `{"content":"where am I?"}`,
			header: http.Header{"Accept": {"application/json;q=0.5, text/event-stream"}}},
	} {
		r.method, r.path = http.MethodPost, messagesOfS1
		got := f.send(r)
		golden(t, "stream", got.body, want)
		if got.header.Get("X-Accel-Buffering") != "no" || !strings.Contains(got.header.Get("Cache-Control"),
			"no-cache") {
			t.Errorf("headers %v", got.header)
		}
	}
	r := f.send(request{
		method: http.MethodPost, path: messagesOfS1, body: `{"content":"x","stream":false}`,
		header: http.Header{"Accept": {"text/event-stream"}},
	})
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the body says no, and the answer is %s", got)
	}
}

// What goes wrong has a status of its own, streamed or not, and keeps the name the chat protocol has for it.
func TestMessageFailures(t *testing.T) {
	for _, tt := range []struct {
		err    *chat.Error
		status int
		code   registry.Code
	}{
		{&chat.Error{Code: chat.CodeEmptyContent, Message: "say something"}, 400, registry.CodeInvalidRequest},
		{&chat.Error{Code: chat.CodeNoUserMessage, Message: "say something"}, 400, registry.CodeInvalidRequest},
		{&chat.Error{Code: chat.CodeSessionBusy, Message: "wait"}, 429, registry.CodeBusy},
		{&chat.Error{Code: chat.CodeAuth, Message: "the key is wrong"}, 502, registry.CodeProvider},
		{&chat.Error{Code: chat.CodeProvider, Message: "it is away"}, 502, registry.CodeProvider},
		{&chat.Error{Code: chat.CodeAgent, Message: "30 iterations"}, 502, registry.CodeAgent},
		{&chat.Error{Code: chat.CodeAgentInit, Message: "no tools"}, 502, registry.CodeAgent},
		{&chat.Error{Code: chat.CodeAgent, Message: "?", Cause: fmt.Errorf("append: %w", errAway)}, 503,
			registry.CodeStoreUnavailable},
	} {
		f := talking(t, fails(tt.err))
		for _, body := range []string{`{"content":"hi"}`, `{"content":"hi","stream":true}`} {
			r := f.post(messagesOfS1, body)
			p := wantProblem(r, tt.status, tt.code)
			if told := tt.err.Code + ": " + tt.err.Message; tt.status != 503 && p.Detail != told {
				t.Errorf("%s: detail %q", tt.err.Code, p.Detail)
			}
			if again := r.header.Get("Retry-After"); (again != "") != (tt.status == 429 || tt.status == 503) {
				t.Errorf("%s: Retry-After %q", tt.err.Code, again)
			}
		}
	}
	busy := &chat.Error{Code: chat.CodeSessionBusy, Message: "wait", Cause: &registry.Error{Code: registry.CodeBusy,
		RetryAfter: 7 * time.Second}}
	if r := talking(t, fails(busy)).post(messagesOfS1, `{"content":"hi"}`); r.header.Get("Retry-After") != "7" {
		t.Errorf("headers %v", r.header)
	}
	odd := talking(t, &scripted{ask: func(context.Context, chat.Ask, func(chat.Event)) (chat.Reply, error) {
		return chat.Reply{}, errors.New("dial 10.0.0.1")
	}})
	if r := odd.post(messagesOfS1, `{"content":"hi"}`); strings.Contains(string(r.body), "10.0.0.1") {
		t.Errorf("body %s", r.body)
	} else {
		wantProblem(r, 500, registry.CodeInternal)
	}
}

// Once something was said, a failure is the last event.
func TestMessageFailsInTheMiddle(t *testing.T) {
	f := talking(t, fails(&chat.Error{Code: chat.CodeProvider, Message: "gone"},
		chat.Event{Type: chat.EventChunk, Content: "We"}))
	r := f.post(messagesOfS1, `{"content":"hi","stream":true}`)
	golden(t, "stream", r.body, "event: chunk\ndata: {\"type\":\"chunk\",\"content\":\"We\"}\n\n"+
		"event: error\ndata: {\"type\":\"error\",\"message\":\"gone\",\"code\":\"PROVIDER_ERROR\"}")
}

func TestMessageAborted(t *testing.T) {
	f := talking(t, &scripted{ask: func(_ context.Context, _ chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
		emit(chat.Event{Type: chat.EventAborted})
		return chat.Reply{}, errors.New("aborted")
	}})
	wantProblem(f.post(messagesOfS1, `{"content":"hi"}`), 409, registry.CodeCancelled)
	golden(t, "stream", f.post(messagesOfS1, `{"content":"hi","stream":true}`).body,
		"event: aborted\ndata: {\"type\":\"aborted\"}")
}

func TestMessageIsReadStrictly(t *testing.T) {
	a := oneTurn()
	f := talking(t, a)
	for body, mention := range map[string]string{
		``:                                   "content",
		`{}`:                                 `"content"`,
		`{"regenerate":false}`:               `"content"`,
		`{"content":""}`:                     `"content"`,
		`{"content":null}`:                   `"content"`,
		`{"content":["hi"]}`:                 `"content"`,
		`{"content":"hi","regenerate":true}`: "combined",
		`{"content":"hi","model":"x"}`:       `"model"`,
		`{"Content":"hi"}`:                   `"content"`,
		`{"content":"hi","content":"ho"}`:    "twice",
		`{"content":"hi","debug":1}`:         `"debug"`,
		`{"content":"hi","stream":"yes"}`:    `"stream"`,
		`{"content":"hi","stream":null}`:     `"stream"`,
		`{"content":"hi","results":"html"}`:  `"results"`,
		`{"content":"hi"} {}`:                "JSON",
		"{\"content\":\"\xff\"}":             "UTF-8",
		`[]`:                                 "object",
	} {
		p := wantProblem(f.post(messagesOfS1, body), 400, registry.CodeInvalidRequest)
		if !strings.Contains(p.Detail, mention) {
			t.Errorf("%s: the detail does not mention %s: %s", body, mention, p.Detail)
		}
	}
	wantProblem(f.post(messagesOfS1+"?stream=1", `{"content":"hi"}`), 400, registry.CodeInvalidRequest)
	form := http.Header{"Content-Type": {"text/plain"}}
	wantProblem(f.send(request{method: http.MethodPost, path: messagesOfS1, body: "{}", header: form}), 415,
		registry.CodeUnsupportedMedia)
	if len(a.asked) != 0 {
		t.Error("the agent was asked")
	}
}

// Whom nobody knows cannot be talked to; whom somebody talked to can be, device or not.
func TestMessageToWhom(t *testing.T) {
	a := oneTurn()
	a.transcripts = map[string]chat.Transcript{"old": {Messages: []provider.Message{{Role: provider.RoleUser,
		Content: "hi"}}}}
	f := talking(t, a)
	f.connect(0, session("gone"), echo).gone()
	hi := `{"content":"hi"}`
	if r := f.post("/api/sessions/old/messages", hi); r.status != 200 {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	wantProblem(f.post("/api/sessions/gone/messages", hi), 409, registry.CodeNotConnected)
	for _, id := range []string{"nobody", "a%20b", strings.Repeat("x", 200)} {
		wantProblem(f.post("/api/sessions/"+id+"/messages", hi), 404, registry.CodeSessionNotFound)
	}
	a.failing = errAway
	wantProblem(f.post("/api/sessions/old/messages", hi), 503, registry.CodeStoreUnavailable)
}

func TestWithoutModel(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo)
	empty := talking(t, &scripted{models: []string{}})
	for _, f := range []*fleet{f, empty} {
		for _, r := range []reply{f.post(messagesOfS1, `{"content":"hi"}`), f.get(messagesOfS1)} {
			if p := wantProblem(r, 404, registry.CodeNotFound); !strings.Contains(p.Detail, "FARHAND_MODEL") {
				t.Errorf("detail %s", p.Detail)
			}
		}
		got := decode[failure](f.post(completionsPath, `{"model":"gpt","messages":[{"role":"user","content":"hi"}]}`),
			404)
		if got.Error.Code != "model_not_found" || !strings.Contains(got.Error.Message, "FARHAND_MODEL") {
			t.Errorf("error %+v", got)
		}
		golden(t, "models", f.get("/v1/models").body, `{"object":"list","data":[]}`)
	}
}
