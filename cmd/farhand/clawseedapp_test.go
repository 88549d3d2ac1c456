package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/redisstore/redistest"
)

// app is what ClawSeed's Android app is to its gateway: a socket that sends connect without capabilities, and REST
// calls, which here go to another pod than the socket.
type app struct {
	testing.TB
	*phone
	rest string
}

// openApp connects as the SDK does: connect and register_tools back to back, and it waits for nothing.
func openApp(t testing.TB, url, rest, session string, work func(*phone, said) (string, bool)) *app {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err != nil {
		t.Fatal(err)
	}
	p := &phone{inbox: newInbox(t, "app "+session), session: session, conn: conn, work: work}
	p.done.Go(p.listen)
	t.Cleanup(p.disconnect)
	p.send(map[string]any{"type": "connect", "v": 1, "session_id": session})
	p.offer("echo")
	return &app{TB: t, phone: p, rest: rest}
}

// ask makes a REST call as the app does, and decodes what it answers with.
func (a *app) ask(method, path, body string, want int, into any) {
	a.Helper()
	req, err := http.NewRequest(method, a.rest+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		a.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			a.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
}

// summary is a session in the app's drawer.
type summary struct {
	SessionID    string `json:"session_id"`
	Name         string `json:"name"`
	CreatedAt    string `json:"created_at"`
	LastActivity string `json:"last_activity"`
	MessageCount int    `json:"message_count"`
	Connected    bool   `json:"connected"`
}

// drawer returns the app's session as it is listed, nil if it is not.
func (a *app) drawer() *summary {
	a.Helper()
	var list struct{ Sessions []summary }
	a.ask(http.MethodGet, "/api/sessions", "", 200, &list)
	for _, s := range list.Sessions {
		if s.SessionID == a.session {
			for _, at := range []string{s.CreatedAt, s.LastActivity} {
				if _, err := time.Parse(time.RFC3339, at); err != nil {
					a.Errorf("%+v: %v", s, err)
				}
			}
			return &s
		}
	}
	return nil
}

func (a *app) state() (state string, running bool) {
	a.Helper()
	var s struct{ State string }
	a.ask(http.MethodGet, "/api/sessions/"+a.session+"/state", "", 200, &s)
	var list struct{ Sessions []summary }
	a.ask(http.MethodGet, "/api/sessions/running", "", 200, &list)
	return s.State, slices.ContainsFunc(list.Sessions, func(s summary) bool { return s.SessionID == a.session })
}

// TestClawSeedApp walks through what ClawSeed's app does with its gateway, on two pods.
func TestClawSeedApp(t *testing.T) {
	t.Parallel()
	model := openStage(t, providerOpenAI)
	pods := startFleet(t, 2, redistest.Single(t), model.settings()...)
	large := strings.Repeat("0123456789abcdef", 4<<20/16)
	a := openApp(t, pods[0].url, pods[1].url, "app-1", func(_ *phone, call said) (string, bool) {
		if strings.Contains(string(call.Args), "large") {
			return large, true
		}
		return "a `plain` result", true
	})
	model.script(t, a.session, calling(echoing(`{"n":1}`)), saying("It is done."),
		scripted.Reply(scripted.Text("Once upon"), scripted.Hold(nil)), saying("Better."))

	var health struct{ Status, Version string }
	a.ask(http.MethodGet, "/health", "", 200, &health)
	if health.Status != "ok" || health.Version == "" {
		t.Errorf("health %+v", health)
	}

	// A turn: the result is shown raw, and the title follows done.
	a.send(map[string]any{"type": "message", "content": tag(a.session) + " do it"})
	if r := a.first("result", ofType("tool_result")); r.Output != "a `plain` result" {
		t.Errorf("shown %q", r.Output)
	}
	a.first("done", ofType("done"))
	title := a.first("title", ofType("title_updated")).Title
	if row := a.drawer(); row == nil || row.Name != title || row.MessageCount != 4 || !row.Connected {
		t.Errorf("in the drawer: %+v, want the name %q", row, title)
	}
	if state, running := a.state(); state != "idle" || running {
		t.Errorf("state %s, running %v", state, running)
	}

	// A turn that is aborted over REST, on the other pod: told once, and what was said is kept.
	a.send(map[string]any{"type": "message", "content": tag(a.session) + " tell a story"})
	a.first("chunk", ofType("chunk"))
	if state, running := a.state(); state != "running" || !running {
		t.Errorf("state %s, running %v", state, running)
	}
	var aborted struct{ Status string }
	a.ask(http.MethodPost, "/api/sessions/"+a.session+"/abort", "{}", 200, &aborted)
	if aborted.Status != "aborted" {
		t.Errorf("%+v", aborted)
	}
	a.first("aborted", ofType("aborted"))
	a.ask(http.MethodPost, "/api/sessions/"+a.session+"/abort", "{}", 200, &aborted)
	if aborted.Status != "no_active_response" {
		t.Errorf("again: %+v", aborted)
	}
	var history struct {
		Messages []struct{ Role, Content string }
	}
	a.ask(http.MethodGet, "/api/sessions/"+a.session+"/messages", "", 200, &history)
	if n := len(only(a.all(), "aborted")); n != 1 {
		t.Errorf("told of the abort %d times", n)
	}
	if n := len(history.Messages); n != 6 || history.Messages[n-1].Content != "Once upon" {
		t.Errorf("kept %+v", history)
	}

	// An output of four megabytes, asked for on the other pod.
	var call struct{ Output string }
	a.ask(http.MethodPost, "/api/sessions/"+a.session+"/tools/echo/call", `{"args":{"large":true}}`, 200, &call)
	if call.Output != large {
		t.Errorf("%d bytes of output", len(call.Output))
	}

	// It is renamed, goes away, is listed all the same, comes back, and is deleted.
	a.ask(http.MethodPut, "/api/sessions/"+a.session, `{"name":"Story time"}`, 200, nil)
	a.disconnect()
	eventually(t, waitLimit, "the app is offline, and listed", func() bool {
		row := a.drawer()
		return row != nil && !row.Connected && row.Name == "Story time" && row.MessageCount == 6
	})
	back := openApp(t, pods[1].url, pods[0].url, a.session, a.work)
	if start := back.all()[0]; start.MessageCount != 6 || !start.Resumed {
		t.Errorf("it comes back to %+v", start)
	}
	back.send(map[string]any{"type": "message", "content": tag(a.session) + " and now?"})
	back.first("done", ofType("done"))
	if row := back.drawer(); row == nil || row.Name != "Story time" || !row.Connected || row.MessageCount != 8 {
		t.Errorf("in the drawer: %+v", row)
	}
	back.ask(http.MethodDelete, "/api/sessions/"+a.session, "", 204, nil)
	back.first("the end of its connection", ofType(closed))
	eventually(t, waitLimit, "nothing is left", func() bool { return back.drawer() == nil })
	if said := back.all(); slices.ContainsFunc(a.all(), ofType("abort_ack")) ||
		slices.ContainsFunc(said, ofType("title_updated")) {
		t.Errorf("heard too much: %+v", said)
	}
	again := openApp(t, pods[0].url, pods[1].url, a.session, a.work)
	if start := again.all()[0]; start.MessageCount != 0 {
		t.Errorf("it comes back to %+v", start)
	}
}
