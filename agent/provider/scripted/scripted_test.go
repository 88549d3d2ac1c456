package scripted_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body as a vendor's client would, and returns status and answer.
func post(t *testing.T, s *scripted.Server, body string) (int, string) {
	t.Helper()
	path := "/chat/completions"
	if !strings.HasSuffix(s.URL, "/v1") {
		path = "/v1/messages"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("anthropic-version", "2023-06-01")
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// said counts streams: nothing that is refused may take a step.
func said(t *testing.T) (func(scripted.Request) scripted.Step, *int) {
	t.Helper()
	n := 0
	return func(scripted.Request) scripted.Step { n++; return scripted.Reply(scripted.Text("ok")) }, &n
}

func check(t *testing.T, s *scripted.Server, served *int, body, want string) {
	t.Helper()
	before := *served
	status, answer := post(t, s, body)
	if want == "" {
		if status != 200 || *served != before+1 {
			t.Errorf("%s\nrefused: %d %s", body, status, answer)
		}
		return
	}
	requests := s.Requests()
	if status != 400 || *served != before || !strings.Contains(answer, `"invalid_request_error"`) ||
		!strings.Contains(requests[len(requests)-1].Refused, want) {
		t.Errorf("%s\nanswered: %d %s, want %q", body, status, answer, want)
	}
}

func TestOpenAIRules(t *testing.T) {
	t.Parallel()
	script, served := said(t)
	s := scripted.OpenAIFunc(t, script)
	const (
		hi   = `{"role":"user","content":"hi"}`
		call = `{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function",` +
			`"function":{"name":"echo","arguments":"oops"}}]}`
		two = `{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"a",` +
			`"arguments":""}},{"id":"y","type":"function","function":{"name":"b","arguments":""}}]}`
		doneX = `{"role":"tool","tool_call_id":"x","content":"ok"}`
		doneY = `{"role":"tool","tool_call_id":"y","content":"ok"}`
	)
	messages := func(m ...string) string {
		return `{"model":"m","stream":true,"messages":[` + strings.Join(m, ",") + `]}`
	}
	tools := func(f string) string {
		return `{"model":"m","stream":true,"messages":[` + hi + `],"tools":[{"type":"function","function":` + f + `}]}`
	}
	for _, c := range []struct{ body, want string }{
		{messages(hi), ""},
		{messages(hi, hi), ""},
		{messages(hi, call, doneX, hi), ""},
		{messages(hi, two, doneY, doneX), ""},
		{tools(`{"name":"a-Z_9","parameters":{"type":"object"}}`), ""},
		{`{`, "could not parse"},
		{`{"stream":true,"messages":[` + hi + `]}`, "model"},
		{`{"model":"m","messages":[` + hi + `]}`, "stream"},
		{messages(), "empty array"},
		{messages(`{"role":"alien","content":""}`), "alien"},
		{messages(`{"role":"user"}`), "got null"},
		{messages(hi, `{"role":"assistant"}`), "got null"},
		{messages(hi, call), "did not have response messages: x"},
		{messages(hi, call, hi, doneX), "did not have response messages: x"},
		{messages(hi, two, doneX), "did not have response messages: y"},
		{messages(hi, call, doneX, doneX), "must be a response to a preceding message"},
		{messages(hi, call, doneY), "must be a response to a preceding message"},
		{messages(hi, doneX), "must be a response to a preceding message"},
		{messages(hi, strings.ReplaceAll(call, "echo", "e.cho"), doneX), "does not match"},
		{messages(hi, strings.ReplaceAll(call, `"x"`, `""`), doneX), "Invalid 'messages[1].tool_calls[0].id'"},
		{messages(hi, strings.ReplaceAll(two, `"y"`, `"x"`), doneX), "tool_calls[1].id"},
		{messages(hi, strings.ReplaceAll(call, `,"arguments":"oops"`, ``), doneX), "Missing required parameter"},
		{tools(`{"name":"a b","parameters":{"type":"object"}}`), "does not match"},
		{tools(`{"name":"` + strings.Repeat("n", 65) + `","parameters":{"type":"object"}}`), "does not match"},
		{tools(`{"name":"a","parameters":{"type":"string"}}`), "must be of type"},
		{tools(`{"name":"a","parameters":{"type":"object"}}},{"type":"function","function":{"name":"a",` +
			`"parameters":{"type":"object"}}`), "unique"},
		{strings.Replace(messages(hi), `{`, `{"max_tokens":1,"max_completion_tokens":1,`, 1), "at the same time"},
	} {
		check(t, s, served, c.body, c.want)
	}
}

func TestAnthropicRules(t *testing.T) {
	t.Parallel()
	script, served := said(t)
	s := scripted.AnthropicFunc(t, script)
	text := func(role, text string) string {
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%q}]}`, role, text)
	}
	blocks := func(role string, b ...string) string {
		return fmt.Sprintf(`{"role":%q,"content":[%s]}`, role, strings.Join(b, ","))
	}
	hi, yes := text("user", "hi"), text("assistant", "yes")
	const (
		use    = `{"type":"tool_use","id":"x","name":"echo","input":{}}`
		useY   = `{"type":"tool_use","id":"y","name":"echo","input":{"a":1}}`
		result = `{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"ok"}]}`
		resY   = `{"type":"tool_result","tool_use_id":"y"}`
		word   = `{"type":"text","text":"w"}`
	)
	with := func(extra string, m ...string) string {
		return `{"model":"m","stream":true,` + extra + `"messages":[` + strings.Join(m, ",") + `]}`
	}
	messages := func(m ...string) string { return with(`"max_tokens":2000,`, m...) }
	thinking := `"max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},`
	for _, c := range []struct{ body, want string }{
		{messages(hi), ""},
		{messages(hi, yes, hi), ""},
		{messages(hi, blocks("assistant", word, use, useY), blocks("user", resY, result, word), yes, hi), ""},
		{messages(hi, blocks("assistant", `{"type":"redacted_thinking","data":"d"}`, use), blocks("user", result)), ""},
		{with(thinking, hi, blocks("assistant", `{"type":"redacted_thinking","data":"d"}`, use),
			blocks("user", result)), ""},
		{with(`"max_tokens":1,"tools":[{"name":"a","input_schema":{"type":"object"}}],`, hi), ""},
		{`{`, "not valid JSON"},
		{with(``, hi), "max_tokens: Field required"},
		{with(`"max_tokens":0,`, hi), "max_tokens"},
		{with(`"max_tokens":1,"temperature":1.5,`, hi), "temperature"},
		{messages(), "at least one message"},
		{messages(yes), "first message must use"},
		{messages(hi, hi), "roles must alternate"},
		{messages(hi, yes, yes), "roles must alternate"},
		{messages(hi, text("system", "x")), "Input should be"},
		{messages(blocks("user")), "non-empty content"},
		{messages(text("user", " \n")), "non-whitespace"},
		{messages(hi, blocks("assistant", use)), "without `tool_result` blocks immediately after: x"},
		{messages(hi, blocks("assistant", use), hi), "without `tool_result` blocks immediately after: x"},
		{messages(hi, blocks("assistant", use, useY), blocks("user", result)), "immediately after: y"},
		{messages(hi, yes, blocks("user", result)), "unexpected `tool_use_id`"},
		{messages(hi, blocks("assistant", use), blocks("user", result, result)), "unexpected `tool_use_id`"},
		{messages(hi, blocks("assistant", use), blocks("user", word, result)), "must come before"},
		{messages(hi, blocks("assistant", use, use), blocks("user", result)), "unique"},
		{messages(hi, blocks("assistant", use), blocks("user", result), blocks("assistant", use),
			blocks("user", result)), "unique"},
		{messages(hi, blocks("assistant", strings.Replace(use, "echo", "e.cho", 1)), blocks("user", result)),
			"tool_use.name"},
		{messages(hi, blocks("assistant", strings.Replace(use, `"x"`, `"x:0"`, 1)), blocks("user", result)),
			"tool_use.id"},
		{messages(hi, blocks("assistant", strings.Replace(use, `{}`, `"{}"`, 1)), blocks("user", result)),
			"valid dictionary"},
		{messages(hi, blocks("assistant", strings.Replace(use, `,"input":{}`, ``, 1)), blocks("user", result)),
			"valid dictionary"},
		{messages(hi, blocks("assistant", use), blocks("user", strings.Replace(result, `"ok"`, `""`, 1))),
			"non-whitespace"},
		{messages(hi, blocks("assistant", `{"type":"thinking","thinking":"t","signature":"forged"}`, use),
			blocks("user", result)), "Invalid `signature`"},
		{with(thinking, hi, blocks("assistant", use), blocks("user", result)), "Expected `thinking`"},
		{with(strings.Replace(thinking, "1024", "1023", 1), hi), "budget_tokens"},
		{with(strings.Replace(thinking, "1024", "2000", 1), hi), "must be greater than"},
		{with(thinking+`"temperature":0.5,`, hi), "may only be set to 1"},
		{with(`"max_tokens":1,"tools":[{"name":"a.b","input_schema":{"type":"object"}}],`, hi), "does not match"},
		{with(`"max_tokens":1,"tools":[{"name":"ab"}],`, hi), "must be of type"},
	} {
		check(t, s, served, c.body, c.want)
	}
}

// The formats are pinned here: a mistake in them would go unnoticed where a provider makes the same one.
func TestFormats(t *testing.T) {
	t.Parallel()
	step := scripted.Reply(scripted.Thinking("hm"), scripted.Text("a"),
		scripted.Calls(scripted.Call{ID: "x", Name: "f", Args: `{}`, Pieces: 2}), scripted.Usage(3, 4))
	_, got := post(t, scripted.OpenAI(t, step), `{"model":"m","stream":true,"stream_options":{"include_usage":true},`+
		`"messages":[{"role":"user","content":"hi"}]}`)
	const chunk = `"created":0,"id":"chatcmpl-0","model":"m","object":"chat.completion.chunk","usage":`
	want := ""
	for _, d := range []string{
		`{"content":"","role":"assistant"},"finish_reason":null`, `{"reasoning_content":"hm"},"finish_reason":null`,
		`{"content":"a"},"finish_reason":null`,
		`{"tool_calls":[{"function":{"arguments":"","name":"f"},"id":"x","index":0,"type":"function"}]},` +
			`"finish_reason":null`,
		`{"tool_calls":[{"function":{"arguments":"{"},"index":0}]},"finish_reason":null`,
		`{"tool_calls":[{"function":{"arguments":"}"},"index":0}]},"finish_reason":null`,
		`{},"finish_reason":"tool_calls"`,
	} {
		want += `data: {"choices":[{"delta":` + d + `,"index":0}],` + chunk + "null}\n\n"
	}
	want += `data: {"choices":[],` + chunk + `{"completion_tokens":4,"prompt_tokens":3,"total_tokens":7}}` +
		"\n\ndata: [DONE]\n\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	_, got = post(t, scripted.Anthropic(t, step), `{"model":"m","stream":true,"max_tokens":1,`+
		`"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`)
	var events []string
	for line := range strings.Lines(got) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			events = append(events, strings.TrimSpace(name))
		}
	}
	block := "content_block_start content_block_delta content_block_stop "
	wantEvents := "message_start ping " + strings.Replace(block, "delta", "delta content_block_delta", 1) + block +
		strings.Replace(block, "delta", "delta content_block_delta", 1) + "message_delta message_stop"
	if strings.Join(events, " ") != wantEvents {
		t.Errorf("events %v, want %s", events, wantEvents)
	}
	for _, part := range []string{
		`data: {"delta":{"thinking":"hm","type":"thinking_delta"},"index":0,"type":"content_block_delta"}`,
		`"type":"signature_delta"`, `{"content_block":{"text":"","type":"text"},"index":1,` +
			`"type":"content_block_start"}`,
		`{"content_block":{"id":"x","input":{},"name":"f","type":"tool_use"},"index":2,"type":"content_block_start"}`,
		`{"delta":{"partial_json":"{","type":"input_json_delta"},"index":2,"type":"content_block_delta"}`,
		`{"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":4}}`,
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := scripted.Anthropic(t, scripted.Fail(529, "busy").With("Retry-After", "3"),
		scripted.Fail(500, "").Body("<html>"))
	const body = `{"model":"m","stream":true,"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text",` +
		`"text":"hi"}]}]}`
	if status, got := post(t, s, body); status != 529 ||
		got != `{"error":{"message":"busy","type":"overloaded_error"},"type":"error"}` {
		t.Errorf("%d %s", status, got)
	}
	if status, got := post(t, s, body); status != 500 || got != "<html>" {
		t.Errorf("%d %s", status, got)
	}
	if r := s.Requests(); len(r) != 2 || r[1].Number != 1 || r[0].Model != "m" ||
		r[0].Messages[0].Role != provider.RoleUser {
		t.Errorf("requests %+v", r)
	}
}

// witness is a test that is expected to fail.
type witness struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (w *witness) Helper()                      {}
func (w *witness) Failed() bool                 { return len(w.errors) > 0 }
func (w *witness) Cleanup(f func())             { w.cleanups = append(w.cleanups, f) }
func (w *witness) Errorf(f string, args ...any) { w.errors = append(w.errors, fmt.Sprintf(f, args...)) }
func (w *witness) end() {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
}

func TestScriptsMustFit(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	short := &witness{TB: t}
	s := scripted.OpenAI(short)
	if status, _ := post(t, s, body); status != 400 || len(short.errors) != 1 {
		t.Errorf("%d, %v", status, short.errors)
	}
	short.end()
	long := &witness{TB: t}
	s = scripted.OpenAI(long, scripted.Reply(), scripted.Reply())
	post(t, s, body)
	if long.end(); len(long.errors) != 1 {
		t.Errorf("errors %v", long.errors)
	}
}
