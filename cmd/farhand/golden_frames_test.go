package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
)

// The golden files hold what clients of the gateway can see: frames and answers, byte for byte. They change only when a
// contract is meant to change: go test ./cmd/farhand -run TestGolden -update

// callOf makes a call over HTTP that the device has to answer.
func (r *record) callOf(url, path, body string) *goldenAnswer {
	return r.ask(url, goldenRequest{method: http.MethodPost, path: path, body: body})
}

// TestGoldenFrames: a device registers tools, is called, answers in every way, and makes mistakes.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	p := startPod(t, "FARHAND_WAKE_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	r := newRecord(t, "frames.txt")
	r.name(p.id, "pod")

	r.section("Opening")
	d := r.dial("phone", p.url, "?session_id=phone&name=My+phone")
	d.next("session_start")
	d.says("connected", `{"type":"connect","v":1,"device_id":"phone-1","device_name":"Phone","platform":"android",`+
		`"labels":{"room":"hall"},"capabilities":["ack","progress","cancel","drain","resume","call_status"]}`)
	nameless := r.dial("nameless", p.url, "")
	nameless.next("session_start")
	nameless.says("connected", `{"type":"connect","session_id":"chosen"}`)
	nameless.says("connected", `{"type":"connect"}`)
	nameless.leave()

	r.section("Tools")
	d.says("tools_registered",
		`{"type":"register_tools","tools":[{"name":"echo","description":"Says it again.",`+
			`"parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},`+
			`"timeout_ms":5000,"annotations":{"readOnlyHint":true}},{"name":"work","description":"Works."}]}`)
	d.says("tools_registered",
		`{"type":"register_tools","tools":[{"name":"has space","description":"x"},{"name":"bad","description":"x",`+
			`"parameters":{"type":"nonsense"}},{"name":"list","description":"x","parameters":[]},`+
			`{"description":"nameless"},7,{"name":"Echo","description":"looks like echo"},{"name":"deep",`+
			`"description":"x","parameters":{"$ref":"https://example.com/schema"}}]}`)
	d.says("error", `{"type":"register_tools"}`)
	d.says("error", `{"type":"register_tools","tools":"all"}`)
	d.says("tools_registered",
		`{"type":"register_tools","tools":[{"name":"old","description":"draft 4","parameters":{"type":"object",`+
			`"properties":{"n":{"type":"int","minimum":0,"exclusiveMinimum":true}}}}]}`)
	d.says("registered_tools", `{"type":"get_registered_tools"}`)
	d.says("tools_registered", `{"type":"unregister_tools","names":["old","never-was"]}`)
	d.says("error", `{"type":"unregister_tools","names":[7]}`)

	r.section("Waking")
	sleeper := r.dial("sleeper", p.url, "?session_id=sleeper")
	sleeper.next("session_start")
	sleeper.says("error", `{"type":"register_wake"}`)
	sleeper.says("connected", `{"type":"connect","device_id":"sleeper","capabilities":["wake"]}`)
	sleeper.says("wake_registered", `{"type":"register_wake","wake":{"kind":"webhook","url":"https://example.com/1"}}`)
	sleeper.says("error", `{"type":"register_wake","wake":{"kind":"webhook","url":"https://10.0.0.1/"}}`)
	sleeper.says("error", `{"type":"register_wake","wake":{"kind":"fcm","token":"t"}}`)
	sleeper.says("wake_registered", `{"type":"register_wake","wake":null}`)
	sleeper.leave()

	r.section("Frames that are refused")
	for _, frame := range []string{
		`{`, `[]`, `"text"`, `{}`, `{"type":7}`, `{"type":"dance"}`, `{"type":"connect","type":"connect"}`,
		`{"type":"tool_result"}`, `{"type":"tool_result","id":7}`, `{"type":"tool_error"}`,
		`{"type":"tool_progress","id":""}`,
		`{"type":"message"}`, `{"type":"message","content":7}`,
		strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 70),
	} {
		d.says("error", "%s", frame)
	}

	r.section("Calls")
	r.frameCalls(p.url, d)

	r.section("A call nobody waits for any more")
	accepted := r.do(p.url, http.MethodPost, "/api/tools/work/call", `{"mode":"async"}`)
	d.called()
	id := field(t, accepted, "call_id")
	r.do(p.url, http.MethodDelete, "/api/calls/"+id, "")
	d.next("tool_call_cancel")
	d.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"late"}`, id)
	d.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"again"}`, id)
	d.says("result_acknowledged",
		`{"type":"tool_result","id":"00000000-0000-4000-8000-000000000000","output":"of no call"}`)
	r.do(p.url, http.MethodGet, "/api/calls/"+id, "")

	r.section("Resuming: the answer to a call comes over the next connection")
	call := r.callOf(p.url, "/api/tools/work/call", `{}`)
	id = d.called()
	d.drop()
	eventually(t, waitLimit, "the pod notices", func() bool { return len(toolsOf(t, p.url)) == 0 })
	d = r.dial("phone", p.url, "?session_id=phone")
	d.next("session_start")
	d.says("connected", `{"type":"connect","device_id":"phone-1","capabilities":["resume"]}`)
	d.says("tools_registered", `{"type":"register_tools","tools":[{"name":"work","description":"Works."}]}`)
	d.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"after all"}`, id)
	call.finish()

	r.section("Deleted by an operator")
	r.do(p.url, http.MethodDelete, "/api/sessions/phone", "")
	d.closed()

	r.section("A frame that is too big")
	d = r.dial("big", p.url, "?session_id=big")
	d.next("session_start")
	d.says("error", `{"type":"message","content":"%s"}`, strings.Repeat("x", 1<<20))
	d.closed()

	r.section("Refused before the upgrade")
	r.refusedUpgrades(p.url)
}

// frameCalls has the device answer in every way.
func (r *record) frameCalls(url string, d *goldenSocket) {
	answers := []struct{ path, body, answer string }{
		{"/api/tools/echo/call", `{"args":{"text":"ü<>&\u2028"}}`,
			`{"type":"tool_result","id":"%s","output":"ü<>&","success":true}`},
		{"/api/sessions/phone/tools/work/call", `{"args":{"n":12345678901234567890,"a":[1.50,1e3]}}`,
			`{"type":"tool_result","id":"%s","output":{"b":1,"a":[2.50]}}`},
		{"/api/tools/work/call", ``, `{"type":"tool_result","id":"%s","output":null}`},
		{"/api/tools/work/call", `{}`, `{"type":"tool_result","id":"%s","success":false,"error":"no","output":"part"}`},
		{"/api/tools/work/call", `{}`, `{"type":"tool_result","id":"%s","output":"click","parts":[{"type":"image",` +
			`"mime_type":"image/png","data":"iVBORw==","size":4,"name":"Küche.png"}]}`},
		{"/api/tools/work/call", `{}`, `{"type":"tool_error","id":"%s","error":"broken"}`},
		{"/api/tools/work/call", `{}`, `{"type":"tool_error","id":"%s"}`},
	}
	for _, a := range answers {
		call := r.callOf(url, a.path, a.body)
		d.says("result_acknowledged", a.answer, d.called())
		call.finish()
	}
	for _, malformed := range []string{
		`{"type":"tool_result","id":"%s","success":"yes"}`, `{"type":"tool_error","id":"%s","error":7}`,
		`{"type":"tool_result","id":"%s","parts":[{"type":"image","mime_type":"image/png","data":"iVBORw"}]}`,
	} {
		call := r.callOf(url, "/api/tools/work/call", `{}`)
		d.says("error", malformed, d.called())
		call.finish()
	}
	call := r.callOf(url, "/api/tools/work/call", `{"timeout_ms":3000}`)
	d.called()
	call.finish()

	accepted := r.do(url, http.MethodPost, "/api/tools/work/call", `{"mode":"async"}`)
	id := d.called()
	d.send(`{"type":"tool_call_accepted","id":"%s"}`, id)
	d.send(`{"type":"tool_progress","id":"%s","progress":0.4,"total":1,"message":"half","chunk":"a part"}`, id)
	d.says("error", `{"type":"tool_progress","id":"%s","progress":"much"}`, id)
	d.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"done"}`, id)
	if field(r.t, accepted, "call_id") != id {
		r.t.Errorf("the call %s is not %s", id, accepted)
	}
	r.do(url, http.MethodGet, "/api/calls/"+id+"?wait_ms=10000", "")
	r.ask(url, goldenRequest{method: http.MethodGet, path: "/api/calls/" + id + "/events", events: true}).finish()
}

// refusedUpgrades asks for sockets that are not given.
func (r *record) refusedUpgrades(url string) {
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for _, path := range []string{"?session_id=-no", "?session_id=x&results=loud", "?session_id=x&name=" +
		strings.Repeat("n", 500)} {
		r.do(url, http.MethodGet, "/ws/chat"+path, "", upgrade...)
	}
	r.do(url, http.MethodGet, "/ws/chat?session_id=x", "", append(upgrade, "Authorization", "Bearer wrong")...)
	r.do(url, http.MethodGet, "/ws/chat?session_id=x", "", append(upgrade, "Authorization", "")...)
	r.do(url, http.MethodGet, "/ws/chat?session_id=x", "", append(upgrade, "Origin", "https://evil.example")...)
	r.do(url, http.MethodGet, "/ws/chat?session_id=x", "")
}

// TestGoldenTakeover: which device gets a session that another has.
func TestGoldenTakeover(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	r := newRecord(t, "takeover.txt")
	r.name(p.id, "pod")

	r.section("The newer wins where nobody declared anything")
	first := r.dial("first", p.url, "?session_id=open")
	first.next("session_start")
	first.says("connected", `{"type":"connect"}`)
	second := r.dial("second", p.url, "?session_id=open")
	second.next("session_start")
	first.closed()

	r.section("The token keeps a session")
	owner := r.dial("owner", p.url, "?session_id=kept")
	token := field(t, owner.next("session_start"), "resume_token")
	owner.says("connected", `{"type":"connect","device_id":"d1","capabilities":["resume","resume_token"]}`)
	stranger := r.dial("stranger", p.url, "?session_id=kept")
	stranger.next("session_start")
	stranger.says("error", `{"type":"connect","device_id":"d1"}`)
	stranger.closed()
	liar := r.dial("liar", p.url, "?session_id=kept")
	liar.next("session_start")
	liar.says("error", `{"type":"connect","device_id":"d1","resume_token":"abcdefghijklmnopqrstuvwxyz"}`)
	liar.closed()
	again := r.dial("owner-again", p.url, "?session_id=kept")
	again.next("session_start")
	again.says("connected",
		`{"type":"connect","device_id":"d1","capabilities":["resume","resume_token"],"resume_token":"%s"}`, token)
	owner.closed()

	r.section("connect names another session than the URL")
	mistaken := r.dial("mistaken", p.url, "?session_id=mine")
	mistaken.next("session_start")
	mistaken.says("error", `{"type":"connect","session_id":"yours"}`)
	mistaken.closed()
}

// TestGoldenDrain: a pod that stops tells its devices and lets their calls end.
func TestGoldenDrain(t *testing.T) {
	t.Parallel()
	p := startPod(t, "FARHAND_DRAIN_TIMEOUT=20s")
	r := newRecord(t, "drain.txt")
	r.name(p.id, "pod")
	d := r.dial("phone", p.url, "?session_id=phone")
	d.next("session_start")
	d.says("connected", `{"type":"connect","capabilities":["drain"]}`)
	d.says("tools_registered", `{"type":"register_tools","tools":[{"name":"work","description":"Works."}]}`)
	call := r.callOf(p.url, "/api/tools/work/call", `{}`)
	id := d.called()
	p.signal(syscall.SIGTERM)
	d.next("server_draining")
	r.do(p.url, http.MethodGet, "/readyz", "")
	r.do(p.url, http.MethodGet, "/ws/chat?session_id=new", "", "Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	d.says("result_acknowledged", `{"type":"tool_result","id":"%s","output":"in time"}`, id)
	call.finish()
	d.closed()
	if code := p.exit(t); code != 0 {
		t.Errorf("the pod ended with %d", code)
	}
}

// TestGoldenChat: conversations on the device's socket, with a scripted model.
func TestGoldenChat(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	model := scripted.OpenAI(t,
		scripted.Reply(scripted.Thinking("hm"), scripted.Text("Good ", "day."), scripted.Usage(10, 2)),
		scripted.Reply(scripted.Calls(scripted.Call{ID: "call_of_model", Name: "echo", Args: `{"text":"hi"}`})),
		scripted.Reply(scripted.Text("It said hi.")),
		scripted.Reply(scripted.Text("It said hi again.")),
		scripted.Reply(scripted.Calls(scripted.Call{ID: "call_of_model2", Name: "missing", Args: `{"text":`})),
		scripted.Reply(scripted.Text("There is none.")),
		scripted.Reply(scripted.Text("I begin"), scripted.Hold(stopped)),
		scripted.Fail(http.StatusUnauthorized, "bad key"),
		scripted.Fail(http.StatusBadRequest, "bad request"),
		scripted.Reply(scripted.Text("debugged")),
	)
	defer close(stopped)
	p := startPod(t, append(append(agentSettings(providerOpenAI, model), "FARHAND_BUILTIN_TOOLS=none"), unpinged...)...)
	r := newRecord(t, "chat.txt")
	r.name(p.id, "pod")
	r.name(model.URL, "model-server")
	d := r.dial("phone", p.url, "?session_id=phone")
	d.next("session_start")
	d.says("connected", `{"type":"connect","device_id":"phone-1","capabilities":["call_status"]}`)
	d.says("tools_registered", `{"type":"register_tools","tools":[{"name":"echo","description":"Says it again."}]}`)

	r.section("A turn in words")
	d.send(`{"type":"message","content":"Hello <you> & me"}`)
	d.all("thinking", "chunk", "chunk", "chunk_reset", "done", "title_updated")

	r.section("A turn with a call")
	d.send(`{"type":"message","content":"say hi"}`)
	d.all("tool_call")
	id := d.called()
	d.send(`{"type":"tool_result","id":"%s","output":"hi"}`, id)
	d.acknowledged("tool_result", "chunk", "chunk_reset", "done")
	r.section("Answered again")
	d.send(`{"type":"regenerate"}`)
	d.all("chunk", "chunk_reset", "done")

	r.section("A tool there is not")
	d.send(`{"type":"message","content":"use another"}`)
	d.all("tool_call", "tool_result", "chunk", "chunk_reset", "done")

	r.section("Ended by the user")
	d.send(`{"type":"message","content":"talk"}`)
	d.all("chunk")
	d.send(`{"type":"abort"}`)
	d.all("abort_ack", "aborted")
	d.says("abort_ack", `{"type":"abort"}`)

	r.section("Failures")
	d.says("error", `{"type":"message","content":"  "}`)
	d.says("error", `{"type":"message","content":"with a bad key"}`)
	d.says("error", `{"type":"message","content":"with a bad request"}`)
	empty := r.dial("empty", p.url, "?session_id=empty")
	empty.next("session_start")
	empty.says("error", `{"type":"regenerate"}`)

	r.section("What the model is asked")
	empty.send(`{"type":"message","content":"debug me","debug":true}`)
	empty.all("debug_prompt", "chunk", "chunk_reset", "done", "title_updated")

	r.section("A gateway without a model")
	dumb := startPod(t)
	d = r.dial("phone", dumb.url, "?session_id=phone")
	d.next("session_start")
	d.says("error", `{"type":"message","content":"hello"}`)
	d.says("abort_ack", `{"type":"abort"}`)
}

// all reads frames of these types, in this order.
func (s *goldenSocket) all(types ...string) {
	s.r.t.Helper()
	for _, typ := range types {
		s.next(typ)
	}
}

// acknowledged reads frames of these types and one result_acknowledged, which comes with any of them and is written
// down first.
func (s *goldenSocket) acknowledged(types ...string) {
	s.r.t.Helper()
	before := s.r.text.String()
	s.r.text.Reset()
	acknowledgement := ""
	for range len(types) + 1 {
		written := s.r.text.Len()
		if frame := s.next(""); strings.HasPrefix(frame, `{"type":"result_acknowledged"`) {
			acknowledgement = s.r.text.String()[written:]
			rest := s.r.text.String()[:written]
			s.r.text.Reset()
			s.r.text.WriteString(rest)
			continue
		} else if !strings.HasPrefix(frame, `{"type":"`+types[0]+`"`) {
			s.r.t.Fatalf("%s: %s instead of %s", s.who, frame, types[0])
		}
		types = types[1:]
	}
	after := s.r.text.String()
	s.r.text.Reset()
	s.r.text.WriteString(before + acknowledgement + after)
}
