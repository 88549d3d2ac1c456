package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// TestGoldenHTTP: every route but those of conversations, answered well and with each error it has.
func TestGoldenHTTP(t *testing.T) {
	t.Parallel()
	p := startPod(t, append(unpinged, "FARHAND_CALL_DENY=denied_*", "FARHAND_MAX_BODY=64KiB")...)
	r := newRecord(t, "http.txt")
	r.name(p.id, "pod")
	get, post, put, remove := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete

	r.section("Without a device")
	for _, path := range []string{
		"/healthz", "/health", "/readyz", "/api/tools", "/api/sessions", "/api/sessions/none", "/api/sessions/running",
		"/api/sessions/none/state",
		"/api/calls", "/api/calls/none", "/api/calls/none/events", "/api/nothing", "/nothing", "/v1/models",
		"/v1/models/none",
	} {
		r.do(p.url, get, path, "")
	}
	r.do(p.url, remove, "/api/calls/none", "")
	r.do(p.url, put, "/api/sessions/none", `{"name":"x"}`)
	r.do(p.url, remove, "/api/sessions/none", "")
	r.do(p.url, post, "/api/sessions/none/abort", "")
	r.do(p.url, post, "/api/tools/none/call", `{}`)
	r.do(p.url, post, "/api/sessions/none/tools/none/call", `{}`)
	r.do(p.url, post, "/api/sessions/none/messages", `{"content":"hello"}`)
	r.do(p.url, get, "/api/sessions/none/messages", "")
	r.do(p.url, post, "/v1/chat/completions", completionHello)

	r.section("Who may ask")
	r.do(p.url, get, "/api/tools", "", "Authorization", "")
	r.do(p.url, get, "/api/tools", "", "Authorization", "Bearer wrong")
	r.do(p.url, get, "/v1/models", "", "Authorization", "Bearer wrong")
	r.do(p.url, get, "/api/tools", "", "Origin", "https://evil.example")
	r.do(p.url, http.MethodPatch, "/api/tools", "")

	phone := r.quietDevice(p.url, "phone",
		`{"name":"echo","description":"Says it again.","parameters":{"type":"object",`+
			`"properties":{"text":{"type":"string"}},"required":["text"]}},{"name":"work","description":"Works."},`+
			`{"name":"denied_tool","description":"x"},`+
			`{"name":"admins","description":"x","security_level":"admin_only"}`)
	r.quietDevice(p.url, "tablet", `{"name":"work","description":"Works on a tablet."}`)

	r.section("Lists")
	for _, path := range []string{
		"/api/tools", "/api/tools?name=work&session_id=tablet", "/api/tools?view=grouped", "/api/tools?format=openai",
		"/api/tools?format=anthropic", "/api/tools?format=mcp",
		"/api/tools?limit=1", "/api/tools?user_id=u", "/api/tools?nonsense=1", "/api/tools?limit=none",
		"/api/tools?limit=5000", "/api/tools?cursor=none", "/api/tools?format=none",
		"/api/tools?view=grouped&format=mcp", "/api/tools?label=novalue", "/api/sessions", "/api/sessions?tool=echo",
		"/api/sessions?label=kind%3Dphone", "/api/sessions?connected=maybe",
		"/api/sessions/phone", "/api/sessions/phone/state",
	} {
		r.do(p.url, get, path, "")
	}
	r.do(p.url, http.MethodHead, "/api/tools", "")
	r.do(p.url, get, "/api/sessions/phone", "", "If-None-Match", "*")

	r.section("Requests that are refused")
	for _, body := range []string{
		`{`, `[]`, `{"args":[]}`, `{"args":{},"args":{}}`, `{"surprise":1}`, `{} {}`, `{"timeout_ms":0}`,
		`{"timeout_ms":1e9}`, `{"mode":"later"}`, `{"select":"best"}`,
		`{"target":{"session_id":7}}`, `{"idempotency_key":"a b"}`, `{"args":{"text":7}}`, `{"args":{}}`,
	} {
		r.do(p.url, post, "/api/tools/echo/call", body)
	}
	r.do(p.url, post, "/api/tools/echo/call", `{"args":{"text":"`+strings.Repeat("x", 70<<10)+`"}}`)
	r.do(p.url, post, "/api/tools/echo/call", `text=x`, "Content-Type", "application/x-www-form-urlencoded")
	r.do(p.url, post, "/api/tools/echo/call?x=1", `{}`)
	r.do(p.url, post, "/api/tools/work/call", `{}`)
	r.do(p.url, post, "/api/tools/work/call", `{"target":{"device_id":"none"}}`)
	r.do(p.url, post, "/api/tools/work/call", `{"target":{"user_id":"u"}}`)
	r.do(p.url, post, "/api/sessions/tablet/tools/echo/call", `{}`)
	r.do(p.url, post, "/api/tools/denied_tool/call", `{}`)
	r.do(p.url, put, "/api/sessions/phone", `{"name":7}`)

	r.section("Calls")
	r.httpCalls(p.url, phone)
	eventually(t, waitLimit, "the feed has the last call", func() bool {
		var listed struct{ Calls []struct{ State string } }
		getJSON(t, p.url+"/api/calls?limit=1", &listed)
		return len(listed.Calls) == 1 && listed.Calls[0].State == "timed_out"
	})
	r.do(p.url, put, "/api/sessions/phone", `{"name":"My phone"}`)
	r.do(p.url, post, "/api/sessions/phone/abort", "")
	r.do(p.url, get, "/api/calls", "")
	r.do(p.url, get, "/api/calls?state=succeeded&limit=1", "")
	r.do(p.url, get, "/api/calls?state=none", "")
	r.do(p.url, get, "/api/events?type=none", "")
	r.ask(p.url, goldenRequest{method: get, path: "/api/events?last_event_id=0-0", events: true,
		until: `"state":"timed_out"`}).finish()

	r.section("A device that goes away")
	call := r.callOf(p.url, "/api/sessions/phone/tools/work/call", `{}`)
	phone.called()
	phone.leave()
	call.finish()
	r.do(p.url, post, "/api/sessions/phone/tools/work/call", `{}`)
	r.do(p.url, remove, "/api/sessions/tablet", "")
}

// quietDevice connects a device that offers tools.
func (r *record) quietDevice(url, session, tools string) *goldenSocket {
	r.t.Helper()
	d := r.dial(session, url, "?session_id="+session)
	d.next("session_start")
	d.says("connected", `{"type":"connect","device_id":"%s-1","platform":"test","labels":{"kind":"%s"}}`, session,
		session)
	d.says("tools_registered", `{"type":"register_tools","tools":[%s]}`, tools)
	return d
}

// httpCalls are calls by everything that can be asked of one.
func (r *record) httpCalls(url string, phone *goldenSocket) {
	for _, body := range []string{
		`{"target":{"session_id":"phone"}}`, `{"target":{"device_id":"phone-1"},"timeout_ms":5000}`,
		`{"target":{"labels":{"kind":"phone"}}}`,
	} {
		call := r.callOf(url, "/api/tools/work/call", body)
		phone.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":{"answer":42}}`, phone.called())
		call.finish()
	}
	const keyed = `{"args":{"n":1},"idempotency_key":"key-1"}`
	const path = "/api/sessions/phone/tools/work/call"
	call := r.callOf(url, path, keyed)
	phone.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"once"}`, phone.called())
	call.finish()
	r.do(url, http.MethodPost, path, keyed)
	r.do(url, http.MethodPost, path, `{"args":{"n":2},"idempotency_key":"key-1"}`)

	accepted := r.do(url, http.MethodPost, path, `{"mode":"async"}`, "Idempotency-Key", "key-2")
	id := field(r.t, accepted, "call_id")
	phone.called()
	r.do(url, http.MethodGet, "/api/calls/"+id+"?wait_ms=1", "")
	r.do(url, http.MethodGet, "/api/calls/"+id+"?wait_ms=100000", "")
	r.do(url, http.MethodDelete, "/api/calls/"+id, "")
	r.do(url, http.MethodDelete, "/api/calls/"+id, "")
	r.ask(url, goldenRequest{method: http.MethodGet, path: "/api/calls/" + id + "/events", events: true}).finish()

	call = r.callOf(url, path, `{"timeout_ms":3000}`)
	phone.called()
	call.finish()
}

// TestGoldenConversations: conversations over HTTP, ours and OpenAI's.
func TestGoldenConversations(t *testing.T) {
	t.Parallel()
	model := scripted.OpenAI(t,
		scripted.Reply(scripted.Text("Good ", "day."), scripted.Usage(10, 2)),
		scripted.Reply(scripted.Thinking("hm"), scripted.Text("Good ", "day."), scripted.Usage(10, 2)),
		scripted.Reply(scripted.Calls(scripted.Call{ID: "call_of_model", Name: "work", Args: `{"a":1}`})),
		scripted.Reply(scripted.Text("It is done.")),
		scripted.Fail(http.StatusBadRequest, "no"),
		scripted.Reply(scripted.Text("Hello ", "there."), scripted.Usage(7, 3)),
		scripted.Reply(scripted.Text("Hello ", "there."), scripted.Usage(7, 3)),
		scripted.Reply(scripted.Calls(scripted.Call{ID: "call_of_client", Name: "mine", Args: `{"b":2}`}),
			scripted.Usage(7, 3)),
		scripted.Reply(scripted.Calls(scripted.Call{ID: "call_of_client", Name: "mine", Args: `{"b":2}`}),
			scripted.Usage(7, 3)),
		scripted.Fail(http.StatusUnauthorized, "bad key"),
	)
	p := startPod(t, agentSettings(providerOpenAI, model)...)
	r := newRecord(t, "conversations.txt")
	r.name(p.id, "pod")
	get, post := http.MethodGet, http.MethodPost
	phone := r.quietDevice(p.url, "phone", `{"name":"work","description":"Works."}`)
	const messages = "/api/sessions/phone/messages"

	r.section("Ours")
	r.do(p.url, get, "/api/tools?source_type=builtin", "")
	r.do(p.url, post, messages, `{"content":"hello"}`)
	r.ask(p.url, goldenRequest{method: post, path: messages, body: `{"content":"hello","stream":true}`,
		events: true}).finish()
	call := r.callOf(p.url, messages, `{"content":"work!"}`)
	phone.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"worked"}`, phone.called())
	call.finish()
	r.do(p.url, post, messages, `{"content":"fail"}`)
	r.do(p.url, get, messages, "")
	r.do(p.url, get, messages+"?limit=1", "")
	r.do(p.url, get, messages+"?limit=0", "")
	r.do(p.url, get, "/api/sessions/phone", "")
	r.do(p.url, post, "/api/tools/time/call", `{"args":{"timezone":7}}`)
	for _, body := range []string{`{}`, `{"content":""}`, `{"content":"x","regenerate":true}`, `{"content":7}`,
		`{"content":"x","results":"loud"}`, `{"contents":"x"}`} {
		r.do(p.url, post, messages, body)
	}
	r.do(p.url, post, "/api/sessions/nobody/messages", `{"content":"hello"}`)
	r.do(p.url, post, "/api/sessions/nobody/messages", `{"regenerate":true}`)

	r.section("OpenAI's")
	const completions = "/v1/chat/completions"
	r.do(p.url, get, "/v1/models", "")
	r.do(p.url, get, "/v1/models/"+modelName, "")
	r.do(p.url, get, "/v1/models/none", "")
	r.do(p.url, post, completions, completionHello)
	streamed := strings.TrimSuffix(completionHello, "}") + `,"stream":true,"stream_options":{"include_usage":true}}`
	r.ask(p.url, goldenRequest{method: post, path: completions, body: streamed, events: true}).finish()
	const tools = `,"tools":[{"type":"function","function":{"name":"mine","description":"x",` +
		`"parameters":{"type":"object"}}}]`
	r.do(p.url, post, completions, strings.TrimSuffix(completionHello, "}")+tools+"}")
	r.ask(p.url, goldenRequest{method: post, path: completions, body: strings.TrimSuffix(streamed, "}") + tools + "}",
		events: true}).finish()
	r.do(p.url, post, completions, completionHello)
	for _, body := range []string{
		`{`, `{}`, `{"model":"farhand"}`, `{"model":"none","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"farhand","messages":[]}`,
		`{"model":"farhand","messages":[{"role":"nobody","content":"x"}]}`, strings.TrimSuffix(completionHello, "}") +
			`,"n":2}`,
		strings.TrimSuffix(completionHello, "}") + `,"surprise":2}`, strings.TrimSuffix(completionHello, "}") +
			`,"tool_choice":"often"}`,
	} {
		r.do(p.url, post, completions, body)
	}
	r.do(p.url, post, completions, completionHello, "X-Farhand-Session", "nobody")
}
