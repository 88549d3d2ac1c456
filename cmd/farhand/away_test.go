package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
)

// stopWriter is an output that calls stop once when a text has been written to it.
type stopWriter struct {
	lockedBuffer
	at   string
	stop func()
	done atomic.Bool
}

func (w *stopWriter) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if strings.Contains(w.String(), w.at) && !w.done.Swap(true) {
		w.stop()
	}
	return n, err
}

// serveAt serves at an address until stop is called.
func serveAt(t *testing.T, addr string, handler http.Handler) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = func() { server.Close(); <-done }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// approvalsOf is a gateway where one call waits for a person. Its stream of events ends at once.
func approvalsOf(id string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
	})
	mux.HandleFunc("GET /api/approvals", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"approvals":[{"id":"decided"},{"id":%q}]}`, id)
	})
	mux.HandleFunc("GET /api/approvals/"+id, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"id":%q,"tool":"door","state":"pending"}`, id)
	})
	return mux
}

// Who waits for approvals goes on waiting while no gateway is there, and passes over what was decided meanwhile.
func TestWaitingForApprovalsOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	addr, stop := serveAt(t, "127.0.0.1:0", approvalsOf("first"))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	out := &stopWriter{at: "second", stop: cancel}
	gone := &stopWriter{at: "no answer from the gateway", stop: func() { serveAt(t, addr, approvalsOf("second")) }}
	out2 := &stopWriter{at: "first", stop: func() { go stop() }}
	app := application{
		in: strings.NewReader(""), out: tee{out, out2}, err: gone, environ: []string{"FARHAND_URL=http://" + addr},
		args: []string{"approve", "list", "--wait"},
	}
	if code := app.run(ctx); code != 0 || !strings.Contains(out.String(), "second") {
		t.Errorf("exit %d\n%s%s", code, out.String(), gone.String())
	}
}

// tee writes to both.
type tee [2]*stopWriter

func (w tee) Write(p []byte) (int, error) {
	_, _ = w[0].Write(p)
	return w[1].Write(p)
}

// A gateway that was never there is an error at once.
func TestWaitingForApprovalsNeedsAGateway(t *testing.T) {
	t.Parallel()
	code, out, errOut := command(t, []string{"FARHAND_URL=http://" + testkit.FreeAddr(t)}, "approve", "list", "--wait")
	if code != 2 || !strings.Contains(errOut, "no answer from the gateway") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// Who follows a call goes on when the gateway is back.
func TestProgressOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	var addr string
	var stop func()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/tools/film/call", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"call_id":"c1","mode":"async","state":"accepted"}`)
	})
	mux.HandleFunc("GET /api/calls/c1/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1-0\ndata: {\"type\":\"progress\",\"message\":\"lens open\"}\n\n")
		w.(http.Flusher).Flush()
		go stop()
	})
	addr, stop = serveAt(t, "127.0.0.1:0", mux)
	again := http.NewServeMux()
	again.HandleFunc("GET /api/calls/c1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if after := r.Header.Get("Last-Event-ID"); after != "1-0" {
			t.Errorf("asked to go on behind %q", after)
		}
	})
	again.HandleFunc("GET /api/calls/c1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"call_id":"c1","status":"completed","success":true,"output":"a film"}`)
	})
	gone := &stopWriter{at: "waiting for the gateway", stop: func() { serveAt(t, addr, again) }}
	var out lockedBuffer
	app := application{
		in: strings.NewReader(""), out: &out, err: gone, environ: []string{"FARHAND_URL=http://" + addr},
		args: []string{"call", "film", "--progress"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if code := app.run(ctx); code != 0 || !strings.Contains(out.String(), "a film") {
		t.Errorf("exit %d\n%s%s", code, out.String(), gone.String())
	}
}

// What a tool returned reaches a pipe byte for byte.
func TestCallKeepsBytes(t *testing.T) {
	t.Parallel()
	const output = `a\r\nb\u001b[31m\u202e\ufeff\u200b no line feed`
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/tools/read/call", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"call_id":"c1","success":true,"output":"`+output+`"}`)
	})
	addr, _ := serveAt(t, "127.0.0.1:0", mux)
	environ := []string{"FARHAND_URL=http://" + addr}
	code, out, errOut := command(t, environ, "call", "read")
	if want := "a\r\nb\x1b[31m\u202e\ufeff\u200b no line feed"; code != 0 || out != want {
		t.Errorf("exit %d\n%q%s", code, out, errOut)
	}
	code, out, errOut = command(t, environ, "call", "read", "--json")
	if want := `{"call_id":"c1","success":true,"output":"` + output + "\"}\n"; code != 0 || out != want {
		t.Errorf("exit %d\n%q%s", code, out, errOut)
	}
}

// A device logs the calls it is asked to log, and its canvas loads from private networks as the gateway's does.
func TestDeviceLogsCallsAndLoadsPrivateURLs(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	environ := []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}
	device := start(t, append(environ, "FARHAND_PRIVATE_URLS=true"), farhandBinary, "device", "--session", "node",
		"--node", "--verbose")
	eventually(t, waitLimit, "the device is there", func() bool {
		return strings.Contains(device.out.String(), "session node offers")
	})
	code, out, errOut := command(t, environ, "call", "canvas_present", `{"url":"http://127.0.0.1:1/"}`)
	if code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	code, out, errOut = command(t, environ, "call", "canvas_present", `{"url":"http://169.254.169.254/"}`)
	if code != 1 {
		t.Errorf("an address with credentials: exit %d\n%s%s", code, out, errOut)
	}
	for _, msg := range []string{"call", "call answered"} {
		want := `"msg":"` + msg + `","tool":"canvas_present"`
		eventually(t, waitLimit, want, func() bool { return strings.Contains(device.out.String(), want) })
	}
}
