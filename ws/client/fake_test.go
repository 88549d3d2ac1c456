package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

const testTimeout = testkit.Limit

// fake is a gateway driven by hand: every connection is handed to the test.
type fake struct {
	t     *testing.T
	http  *httptest.Server
	conns chan *peer

	refuses atomic.Bool  // connections, as a gateway that is about to start
	refused atomic.Int64 // how many it has
}

// peer is the gateway's end of one connection.
type peer struct {
	t     *testing.T
	conn  *websocket.Conn
	query map[string][]string

	opening map[string]any // the connect frame
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, conns: make(chan *peer, 16)}
	var upgrader websocket.Upgrader
	f.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.refuses.Load() {
			f.refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrade: %v", err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		f.conns <- &peer{t: t, conn: conn, query: r.URL.Query()}
	}))
	t.Cleanup(f.http.Close)
	return f
}

// accept waits for a connection and reads its opening; it answers with session_start and tools_registered.
func (f *fake) accept() *peer {
	f.t.Helper()
	select {
	case p := <-f.conns:
		p.opening = p.expect("connect")
		p.send(map[string]any{"type": "session_start", "v": 1, "session_id": "given", "resumed": false,
			"message_count": 0, "resume_token": "the-first-token"})
		register := p.expect("register_tools")
		n := len(register["tools"].([]any))
		p.send(map[string]any{"type": "tools_registered", "count": n, "registered": n})
		return p
	case <-time.After(testTimeout):
		f.t.Fatal("no connection")
		panic("unreachable")
	}
}

func (p *peer) send(frame map[string]any) {
	p.t.Helper()
	must(p.t, p.conn.WriteJSON(frame))
}

// next reads one frame. It acknowledges answers, and skips what says no more than that a slow machine is slow.
func (p *peer) next() map[string]any {
	p.t.Helper()
	frame := p.raw()
	for frame["type"] == "tool_call_accepted" {
		frame = p.raw()
	}
	switch frame["type"] {
	case "tool_result", "tool_error":
		p.send(map[string]any{"type": "result_acknowledged", "id": frame["id"]})
	}
	return frame
}

// raw reads one frame and does nothing else.
func (p *peer) raw() map[string]any {
	p.t.Helper()
	must(p.t, p.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	_, data, err := p.conn.ReadMessage()
	must(p.t, err)
	var frame map[string]any
	must(p.t, json.Unmarshal(data, &frame))
	return frame
}

// ends reads until the connection is closed, and so answers the client's close frame.
func (p *peer) ends() {
	p.t.Helper()
	must(p.t, p.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	for {
		if _, _, err := p.conn.ReadMessage(); err != nil {
			return
		}
	}
}

func (p *peer) expect(typ string) map[string]any {
	p.t.Helper()
	frame := p.next()
	if frame["type"] != typ {
		p.t.Fatalf("got %v, want a frame of type %s", frame, typ)
	}
	return frame
}

func (p *peer) call(id, tool string, deadlineMS int) {
	p.t.Helper()
	p.send(map[string]any{"type": "tool_call_request", "id": id, "name": tool, "args": map[string]any{"n": 1},
		"deadline_ms": deadlineMS})
}

// close sends a close frame and waits for the echo.
func (p *peer) close(code int, reason string) {
	p.t.Helper()
	must(p.t, p.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason),
		time.Now().Add(testTimeout)))
	_ = p.conn.SetReadDeadline(time.Now().Add(testTimeout))
	for {
		if _, _, err := p.conn.ReadMessage(); err != nil {
			break
		}
	}
	_ = p.conn.Close()
}

// start runs a client until the test ends. The channel gets what Run returned.
func start(t *testing.T, address string, options ...client.Option) (*client.Client, <-chan error, func()) {
	t.Helper()
	c, err := client.New(address,
		append([]client.Option{client.WithBackoff(time.Millisecond, 5*time.Millisecond)}, options...)...)
	must(t, err)
	ctx, cancel := newContext()
	done := make(chan error, 1)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		done <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-finished:
		case <-time.After(testTimeout):
			t.Error("Run did not return")
		}
	})
	return c, done, cancel
}

func wait[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testTimeout):
		t.Fatal("waited in vain")
		panic("unreachable")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
