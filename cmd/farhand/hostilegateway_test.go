package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/textsafe"
)

// escaped is what a gateway that means harm says in place of each id, code and state: it wipes the screen, and begins a
// line that looks like a question of ours.
const escaped = `x\u001b[2J\u009b1m\u202e\nMay this command run here?`

// hostileGateway answers every command with escaped.
func hostileGateway(t *testing.T) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(pattern, format string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			if strings.HasPrefix(format, "data:") {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			fmt.Fprint(w, strings.ReplaceAll(format, "$", escaped))
		})
	}
	answer("POST /api/tools/{tool}/call", `{"call_id":"$","state":"$","success":true,"output":"fine","session_id":"$"}`)
	answer("GET /api/calls/{id}/events", "data: {\"type\":\"state\",\"state\":\"$\"}\n\n")
	answer("GET /api/calls/{id}", `{"call_id":"$","status":"completed","success":true,"output":"fine"}`)
	answer("GET /api/audit", `{"lines":[],"next_cursor":"$"}`)
	answer("POST /api/keys", `{"id":"$","tenant":"$","key":"fhk_x"}`)
	answer("POST /pair", `{"secret":"s","code":"$","device_id":"d","expires_in":60,"interval":1}`)
	mux.HandleFunc("POST /pair/status", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"code":"refused","detail":"%s"}`, strings.ReplaceAll(escaped, `\n`, ""))
	})
	mux.HandleFunc("GET /ws/chat", func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		frames := []string{`{"type":"session_start","session_id":"$","resume_token":"0123456789abcdef"}`,
			`{"type":"error","code":"$","message":"$"}`,
			`{"type":"tools_registered","registered":0,"rejected":[{"name":"$","reason":"$"}]}`}
		for _, frame := range frames {
			text := strings.ReplaceAll(frame, "$", escaped)
			if conn.WriteMessage(websocket.TextMessage, []byte(text)) != nil {
				return
			}
		}
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// No word of a gateway acts on the terminal of who speaks to it, nor begins a line that is not its own.
func TestWordsOfAGatewayDoNotActOnATerminal(t *testing.T) {
	t.Parallel()
	url := hostileGateway(t)
	environ := []string{"FARHAND_URL=" + url, "FARHAND_TOKEN=x", "HOME=" + t.TempDir()}
	harmless := func(shown string) bool {
		return shown != "" && !textsafe.Hides(shown) && !strings.Contains("\n"+shown, "\nMay this")
	}
	for _, args := range [][]string{
		{"call", "film"}, {"call", "film", "--async"}, {"call", "film", "--progress"}, {"audit"}, {"keys", "create"},
	} {
		if _, _, errOut := command(t, environ, args...); !harmless(errOut) {
			t.Errorf("%v shows %+q", args, errOut)
		}
	}
	_, out, errOut := command(t, environ, "device", "--pair", "--credential", t.TempDir()+"/c.json")
	if !harmless(out) || !harmless(errOut) {
		t.Errorf("a device that is to be paired shows %+q, %+q", out, errOut)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var shown, said lockedBuffer
	app := application{in: strings.NewReader(""), out: &shown, err: &said, environ: environ,
		args: []string{"device", "--tools", "echo"}}
	ended := make(chan int, 1)
	go func() { ended <- app.run(ctx) }()
	eventually(t, waitLimit, "the device is connected",
		func() bool { return strings.Contains(shown.String(), "offers") })
	cancel()
	<-ended
	if !harmless(shown.String()) || !harmless(said.String()) {
		t.Errorf("a device shows %+q, %+q", shown.String(), said.String())
	}
}

// The token is for the gateway that it was given with: no answer of it sends a command elsewhere, not even to another
// port of the same host, to which Go sends the token, too.
func TestNoGatewaySendsACommandElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was asked elsewhere, with %q", r.Method, r.URL, r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"success":true,"output":"inner"}`)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/latest/meta-data", status)
		}))
		t.Cleanup(gateway.Close)
		environ := []string{"FARHAND_URL=" + gateway.URL, "FARHAND_TOKEN=secret", "HOME=" + t.TempDir()}
		for _, args := range [][]string{{"call", "film"}, {"sessions"}, {"audit"}} {
			if code, _, errOut := command(t, environ, args...); code == 0 || !strings.Contains(errOut, "redirects to") {
				t.Errorf("%v: exit %d, %s", args, code, errOut)
			}
		}
	}
}

// An answer without an end does not take the memory of the machine.
func TestAnswersOfAGatewayAreBounded(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for text := []byte(strings.Repeat(" ", 1<<20)); err == nil &&
			sent.Load() < 4*maxBody; sent.Add(int64(len(text))) {
			_, err = w.Write(text)
		}
	}))
	t.Cleanup(gateway.Close)
	environ := []string{"FARHAND_URL=" + gateway.URL, "FARHAND_TOKEN=x", "HOME=" + t.TempDir()}
	code, _, errOut := command(t, environ, "call", "film")
	if code == 0 || !strings.Contains(errOut, "longer than") || sent.Load() > 2*maxBody {
		t.Errorf("exit %d after %d bytes: %s", code, sent.Load(), errOut)
	}
}

// A gateway that answers at once that a call still runs is not asked again at once.
func TestACallThatNeverEndsIsAskedForSlowly(t *testing.T) {
	t.Parallel()
	const enough = 3
	var asked atomic.Int64
	ended := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/tools/film/call", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"call_id":"c","state":"executing"}`)
	})
	mux.HandleFunc("GET /api/calls/c/events", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("DELETE /api/calls/c", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /api/calls/c", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == enough {
			close(ended)
		}
		fmt.Fprint(w, `{"call_id":"c","status":"executing"}`)
	})
	gateway := httptest.NewServer(mux)
	t.Cleanup(gateway.Close)
	var out, errOut lockedBuffer
	app := application{in: strings.NewReader(""), out: &out, err: &errOut, args: []string{"call", "film", "--progress"},
		environ: []string{noData, "FARHAND_URL=" + gateway.URL, "FARHAND_TOKEN=x", "HOME=" + t.TempDir()}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, done := time.Now(), make(chan int, 1)
	go func() { done <- app.run(ctx) }()
	testkit.Receive(t, "the call is asked for again", ended)
	took := time.Since(began)
	cancel()
	<-done
	if took < (enough-1)*streamPause/2 {
		t.Errorf("asked %d times within %v: %s", enough, took, errOut.String())
	}
}
