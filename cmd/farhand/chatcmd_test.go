package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// talker is a gateway that has sessions and an answer to everything.
type talker struct {
	*httptest.Server
	sessions []string
	gone     []string // sessions of which only the conversation is left
	answer   func(w http.ResponseWriter, r *http.Request, content string)
	heard    chan map[string]any
	decided  chan string // approvals, each with what was decided
}

func newTalker(t *testing.T, sessions []string, answer func(http.ResponseWriter, *http.Request, string)) *talker {
	t.Helper()
	g := &talker{sessions: sessions, answer: answer, heard: make(chan map[string]any, 16),
		decided: make(chan string, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/sessions", func(w http.ResponseWriter, r *http.Request) {
		rows := []map[string]any{}
		for _, id := range g.sessions {
			rows = append(rows, map[string]any{"session_id": id, "name": "the " + id + "\x1b[2J", "connected": true,
				"pod": "pod-1"})
		}
		if r.URL.Query().Get("connected") != "true" {
			for _, id := range g.gone {
				rows = append(rows, map[string]any{"session_id": id, "connected": false})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sessions": rows})
	})
	mux.HandleFunc("POST /api/sessions/{id}/messages", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if json.NewDecoder(r.Body).Decode(&body) != nil || r.Header.Get("Authorization") != "Bearer "+fleetToken {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		body["session"] = r.PathValue("id")
		g.heard <- body
		g.answer(w, r, body["content"].(string))
	})
	mux.HandleFunc("POST "+pathApprovals+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Decision string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.decided <- r.PathValue("id") + " " + body.Decision
		fmt.Fprint(w, "{}")
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *talker) environ() []string {
	return []string{"FARHAND_URL=" + g.URL, "FARHAND_TOKEN=" + fleetToken}
}

// tell answers with events, and a comment between them.
func tell(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		fmt.Fprintf(w, ":\n\nevent: whatever\ndata: %s\n\n", e)
	}
	_ = http.NewResponseController(w).Flush()
}

var aTurn = []string{
	`{"type":"debug_prompt","messages":[{"role":"user","content":"where\nam I?"}],"estimated_tokens":7}`,
	`{"type":"thinking","content":"a tool"}`,
	`{"type":"chunk","content":"Let me "}`, `{"type":"chunk","content":"look.\u001b[2J"}`,
	`{"type":"tool_call","id":"c1","name":"locate","args":{"fast":true},"status":"pending"}`,
	`{"type":"tool_call","id":"c1","name":"locate","args":{"fast":true},"status":"executing"}`,
	`{"type":"tool_result","id":"c1","name":"locate","output":"at\u001b]0;home\u0007 ` + strings.Repeat("x", 500) +
		`","status":"completed"}`,
	`{"type":"tool_result","id":"c2","name":"snap","output":"no camera","status":"failed","parts":[` +
		`{"type":"image","mime_type":"image/png","size":3,"url":"/blobs/1"},` +
		`{"type":"image","mime_type":"image/png","size":3}]}`,
	`{"type":"title_updated","title":"Home"}`,
	`{"type":"chunk","content":"At home."}`, `{"type":"chunk_reset"}`,
	`{"type":"done","full_response":"Let me look. At home.","turn_id":"t1"}`,
}

func TestChatShowsATurn(t *testing.T) {
	t.Parallel()
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) { tell(w, aTurn...) })
	code, out, errOut := command(t, g.environ(), "chat", "where", "am", "I?")
	if want := "Let me look.\uFFFD[2J\nAt home.\n"; code != 0 || out != want {
		t.Errorf("exit %d, got %q, want %q", code, out, want)
	}
	want := "→ locate {\"fast\":true}\n← locate: at\uFFFD]0;home\uFFFD " + strings.Repeat("x", 107) +
		"…\n✗ snap: no camera\n  [image image/png, 3 B: " + g.URL + "/blobs/1]\n  [image image/png, 3 B]\ntitle: Home\n"
	if errOut != "prompt: 1 messages, about 7 tokens\n  user: where am I?\n"+want {
		t.Errorf("beside it:\n%s", errOut)
	}
	heard := <-g.heard
	if heard["session"] != "laptop" || heard["content"] != "where am I?" || heard["stream"] != true ||
		heard["debug"] != false {
		t.Errorf("said %v", heard)
	}
	_, _, errOut = command(t, g.environ(), "chat", "--session", "other", "--thinking", "--debug", "hi")
	if heard := <-g.heard; heard["session"] != "other" || heard["debug"] != true {
		t.Errorf("said %v", heard)
	}
	if !strings.Contains(errOut, "a tool\n") {
		t.Errorf("the reasoning is missing:\n%s", errOut)
	}
}

// Conversations of devices that have gone stand in the gateway's list, too. Whom to talk to, and what is connected, is
// chosen among those that are there.
func TestCommandsMeanConnectedSessions(t *testing.T) {
	t.Parallel()
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) { tell(w, aTurn...) })
	g.gone = []string{"phone"}
	if code, _, errOut := command(t, g.environ(), "chat", "hi"); code != 0 {
		t.Fatalf("chat: exit %d: %s", code, errOut)
	}
	if heard := <-g.heard; heard["session"] != "laptop" {
		t.Errorf("talked to %v", heard["session"])
	}
	for _, args := range [][]string{{"sessions"}, {"sessions", "--json"}, {"__complete", "call", "--session", ""}} {
		code, out, errOut := command(t, g.environ(), args...)
		if code != 0 || !strings.Contains(out, "laptop") || strings.Contains(out, "phone") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errOut)
		}
	}
	g.sessions = nil
	if code, _, errOut := command(t, g.environ(), "chat", "hi"); code != exitError ||
		!strings.Contains(errOut, "no device is connected") {
		t.Errorf("with nobody there: exit %d: %s", code, errOut)
	}
}

// A gateway that does not stream text still has an answer.
func TestChatShowsWhatWasNotStreamed(t *testing.T) {
	t.Parallel()
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
		tell(w, `{"type":"done","full_response":"hello\u001b"}`)
	})
	if code, out, errOut := command(t, g.environ(), "chat", "hi"); code != 0 || out != "hello\uFFFD\n" || errOut != "" {
		t.Errorf("exit %d: %q %q", code, out, errOut)
	}
}

func TestChatFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sessions []string
		answer   func(http.ResponseWriter, *http.Request, string)
		want     []string
	}{
		"nobody there": {nil, nil, []string{"no device is connected"}},
		"several": {[]string{"laptop", "phone"}, nil,
			[]string{"choose one", "--session laptop", "--session phone  (the phone\uFFFD[2J)"}},
		"busy": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"code":"busy","detail":"SESSION_BUSY: wait\u001b"}`)
		}, []string{"busy: SESSION_BUSY: wait\uFFFD"}},
		"in the middle": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			tell(w, `{"type":"chunk","content":"We"}`,
				`{"type":"error","code":"PROVIDER_ERROR","message":"gone\u001b"}`)
		}, []string{"We\n", "PROVIDER_ERROR: gone\uFFFD"}},
		"aborted": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			tell(w, `{"type":"aborted"}`)
		}, []string{"aborted"}},
		"broken off": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			tell(w, `{"type":"chunk","content":"We"}`)
		}, []string{"We\n", "cut off"}},
		"no gateway": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			fmt.Fprint(w, "<html>")
		}, []string{"not from a Farhand gateway"}},
		"no events": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			tell(w, `<html>`)
		}, []string{"not from a Farhand gateway"}},
		"wrong answer": {[]string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.WriteHeader(http.StatusTeapot)
		}, []string{"418"}},
	} {
		g := newTalker(t, tt.sessions, tt.answer)
		code, out, errOut := command(t, g.environ(), "chat", "hi")
		if code != exitError {
			t.Errorf("%s: exit %d", name, code)
		}
		for _, want := range tt.want {
			if !strings.Contains(out+errOut, want) {
				t.Errorf("%s: no %q in\n%s%s", name, want, out, errOut)
			}
		}
		if strings.Contains(out+errOut, "\x1b") || strings.Contains(out+errOut, fleetToken) {
			t.Errorf("%s: something that must not be shown: %q", name, out+errOut)
		}
	}
}

// Lines are answered one after the other until there are no more; one that fails does not end it.
func TestChatConversation(t *testing.T) {
	t.Parallel()
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, _ *http.Request, content string) {
		if content == "fail" {
			tell(w, `{"type":"error","code":"AGENT_ERROR","message":"30 iterations"}`)
			return
		}
		tell(w, `{"type":"chunk","content":"re `+content+`"}`, `{"type":"done"}`)
	})
	var out, errOut lockedBuffer
	app := application{in: strings.NewReader("one\n  \nfail\ntwo"), out: &out, err: &errOut, environ: g.environ(),
		args: []string{"chat"}}
	if code := app.run(t.Context()); code != 0 || out.String() != "re one\nre two\n" ||
		errOut.String() != "farhand: AGENT_ERROR: 30 iterations\n" {
		t.Errorf("exit %d: %q %q", code, out.String(), errOut.String())
	}
}

// conversation is one that the test speaks and interrupts in.
type conversation struct {
	*talker
	say        io.WriteCloser
	interrupts chan os.Signal
	out, err   lockedBuffer
	left       chan error
	hungUp     chan struct{}
}

// endlessTalk begins a conversation whose answers do not end.
func endlessTalk(t *testing.T) *conversation {
	t.Helper()
	c := &conversation{interrupts: make(chan os.Signal, 1), left: make(chan error, 1), hungUp: make(chan struct{}, 4)}
	c.talker = newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, r *http.Request, _ string) {
		tell(w, `{"type":"chunk","content":"well"}`)
		<-r.Context().Done()
		c.hungUp <- struct{}{}
	})
	in, say := io.Pipe()
	c.say = say
	app := application{in: in, out: &c.out, err: &c.err}
	o := chatOptions{session: "laptop", remote: remote{server: c.URL, token: fleetToken}}
	go func() { c.left <- app.converse(context.Background(), o, c.interrupts) }()
	t.Cleanup(func() { _ = say.Close() })
	return c
}

// begin says something and waits until the answer has begun.
func (c *conversation) begin(t *testing.T, before int) {
	t.Helper()
	if _, err := io.WriteString(c.say, "hi\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitLimit, "the answer begins", func() bool { return strings.Count(c.out.String(), "well") > before })
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(waitLimit):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// An interrupt ends the answer, on the gateway too, and not the conversation; without an answer it ends that.
func TestChatIsInterrupted(t *testing.T) {
	t.Parallel()
	c := endlessTalk(t)
	for i := range 2 {
		c.begin(t, i)
		c.interrupts <- os.Interrupt
		receive(t, "the gateway to be told", c.hungUp)
		eventually(t, waitLimit, "the user is told",
			func() bool { return strings.Count(c.err.String(), "aborted") == i+1 })
	}
	c.interrupts <- os.Interrupt
	if err := receive(t, "the end", c.left); err != nil {
		t.Error(err)
	}
}

func TestChatIsEnded(t *testing.T) {
	t.Parallel()
	c := endlessTalk(t)
	c.begin(t, 0)
	c.interrupts <- syscall.SIGTERM
	if err := receive(t, "the end", c.left); err != nil {
		t.Error(err)
	}
	receive(t, "the gateway to be told", c.hungUp)
}

// A single message is aborted with the program.
func TestChatMessageIsInterrupted(t *testing.T) {
	t.Parallel()
	g := newTalker(t, []string{"laptop"}, func(w http.ResponseWriter, r *http.Request, _ string) {
		tell(w, `{"type":"chunk","content":"well"}`)
		<-r.Context().Done()
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out lockedBuffer
	app := application{out: &out, err: io.Discard}
	done := make(chan error, 1)
	go func() {
		done <- app.chat(ctx, "hi", chatOptions{session: "laptop", remote: remote{server: g.URL, token: fleetToken}})
	}()
	eventually(t, waitLimit, "the answer begins", func() bool { return strings.Contains(out.String(), "well") })
	interrupt()
	if err := receive(t, "the end", done); !errors.Is(err, errAborted) || out.String() != "well\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
