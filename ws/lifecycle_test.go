package ws_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

func deadline() time.Time { return time.Now().Add(testTimeout) }

func TestReplacedSocketDoesNotRemoveItsSuccessor(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	old := g.connectWithTools("same", "echo")
	lost := g.call("same", "echo", `{}`)
	old.expect("tool_call_request")
	successor := g.connectWithTools("same", "echo")
	old.expectClose(ws.CloseReplaced)
	if o := await(t, lost); !errors.Is(o.err, registry.CodeConnectionLost) {
		t.Fatalf("call of the old socket: %+v", o)
	}
	g.waitReleased() // the old claim, late
	done := g.call("same", "echo", `{}`)
	id := successor.expect("tool_call_request")["id"].(string)
	successor.send(`{"type":"tool_result","id":"` + id + `","output":"here"}`)
	if o := await(t, done); o.err != nil || o.result.Output != "here" {
		t.Fatalf("call of the new socket: %+v", o)
	}
	if len(g.pod.Hub.All()) != 1 {
		t.Fatalf("%d sessions", len(g.pod.Hub.All()))
	}
}

func TestKickedSessionIsToldNotToComeBack(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("kicked")
	must(t, g.pod.Hub.Kick(context.Background(), g.session("kicked").Session()))
	d.expectClose(ws.CloseEnded)
	g.waitReleased()
}

func (g *gateway) session(id string) *routing.LocalSession {
	g.t.Helper()
	l := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: id})
	if l == nil {
		g.t.Fatalf("session %s is not here", id)
	}
	return l
}

func TestConnectForAnotherSessionCloses(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("mine")
	d.send(`{"type":"connect","session_id":"yours"}`)
	d.expectError("SESSION_OWNER_MISMATCH", "session_id")
	d.expectClose(ws.CloseOwnerMismatch)
}

func TestLostSessionClosesAsReplaced(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("fenced")
	refuse := func() error { return registry.ErrNotOwner }
	g.store.put.Store(&refuse)
	d.send(`{"type":"register_tools","tools":[{"name":"a"}]}`)
	d.expectClose(ws.CloseReplaced)
}

// explosive is a log that panics when a closing is logged.
type explosive struct{ slog.Handler }

func (explosive) Enabled(context.Context, slog.Level) bool { return true }

func (e explosive) WithAttrs([]slog.Attr) slog.Handler { return e }

func (explosive) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "closing a device" {
		panic("boom")
	}
	return nil
}

func TestPanicClosesOnlyItsConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.Log = slog.New(explosive{slog.DiscardHandler}) })
	bystander := g.connect("bystander")
	d := g.connect("unlucky")
	d.send("\xff") // is logged, by whoever handles the frame
	d.expectClose(ws.CloseInternal)
	if s := g.waitReleased(); s.Key.Session != "unlucky" {
		t.Fatalf("released %s", s.Key.Session)
	}
	bystander.alive()

	boom := func() error { panic("boom") }
	g.store.claim.Store(&boom)
	g.dial("unlucky-too").expectClose(ws.CloseInternal)
	g.store.claim.Store(nil)
	g.connect("fine").alive()
}

func TestStoreAwayAtConnectInvitesBack(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	away := func() error { return registry.StoreUnavailable("claim", errors.New("down")) }
	g.store.claim.Store(&away)
	g.dial("early").expectClose(ws.CloseUnavailable)
	g.store.claim.Store(nil)
	g.connect("early").alive()
}

func TestStoreAwayAtRegistrationChangesNothing(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	away := func() error { return registry.StoreUnavailable("put", errors.New("down")) }
	g.store.put.Store(&away)
	g.connectWithTools("patient", "echo").alive()
	g.store.put.Store(nil)
}

func TestClosePoliteAndFinal(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	plain := g.connect("plain")
	draining := g.connect("draining")
	draining.send(`{"type":"connect","capabilities":["drain"]}`)
	draining.expect("connected")
	plain.expectNothingButClose(g, ws.CloseRestart, func() {
		frame := draining.expect("server_draining")
		if ms, ok := frame["retry_after_ms"].(float64); !ok || ms < 0 || ms > 5000 {
			t.Errorf("server_draining: %v", frame)
		}
		draining.expectClose(ws.CloseRestart)
	})
	status, problem, header := g.refusal("token="+testToken, nil)
	if status != http.StatusServiceUnavailable || problem["code"] != "draining" || header.Get("Retry-After") == "" {
		t.Fatalf("refused with %d %v", status, problem)
	}
	if g.server.Len() != 0 || len(g.pod.Hub.All()) != 0 {
		t.Fatalf("%d connections, %d sessions remain", g.server.Len(), len(g.pod.Hub.All()))
	}
	must(t, g.server.Close(context.Background())) // again
}

// expectNothingButClose closes the server while both peers read.
func (d *device) expectNothingButClose(g *gateway, why ws.Close, meanwhile func()) {
	d.t.Helper()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- g.server.Close(ctx)
	}()
	meanwhile()
	must(d.t, d.conn.SetReadDeadline(deadline()))
	_, data, err := d.conn.ReadMessage()
	var got *websocket.CloseError
	if !errors.As(err, &got) || got.Code != why.Code() || got.Text != why.Reason() {
		d.t.Fatalf("got %s %v, want %v", data, err, why)
	}
	must(d.t, <-closed)
}

func TestDrainRefusesButKeepsSockets(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("stays")
	g.server.Drain()
	d.alive()
	if status, _, _ := g.refusal("token="+testToken, nil); status != http.StatusServiceUnavailable {
		t.Fatalf("refused with %d", status)
	}
}

func TestCloseCutsWhoDoesNotAnswerTheCloseFrame(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.connect("deaf") // never reads again
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	must(t, g.server.Close(ctx)) // an error if the connection had not ended before the context
}

// TestUnansweredCloseFrame: a session is ended, and its peer takes the close frame without answering it. The gateway
// does not wait for it: the connection ends, and what the peer sends meanwhile changes nothing.
func TestUnansweredCloseFrame(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("rude", "echo")
	d.conn.SetCloseHandler(func(int, string) error { return nil }) // gorilla would answer
	must(t, g.pod.Hub.Kick(context.Background(), g.session("rude").Session()))
	raw := d.conn.NetConn()
	_, err := raw.Write([]byte("\x81\x80\x00\x00\x00\x00")) // an empty text frame, as if nothing had been said
	must(t, err)
	g.waitReleased()
	must(t, raw.SetReadDeadline(deadline()))
	if _, err := io.Copy(io.Discard, raw); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection stays open")
	}
	g.connect("another").alive()
}

// TestJunkInCloseFrames: close frames of peers with codes and reasons that RFC 6455 forbids are answered with 1002 (a
// protocol error; 7.4, 5.5.1), end that connection and no other.
func TestJunkInCloseFrames(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, payload := range map[string]string{
		"code 999":        "\x03\xe7",
		"code 1005":       "\x03\xed",
		"code 1006":       "\x03\xee",
		"code 5000":       "\x13\x88",
		"reason not UTF8": "\x03\xe8\xff\xfe",
	} {
		d := g.connect("junk")
		frame := append([]byte{0x88, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...) // masked with zeros
		_, err := d.conn.NetConn().Write(frame)
		must(t, err)
		must(t, d.conn.SetReadDeadline(deadline()))
		var closed *websocket.CloseError
		if _, _, err := d.conn.ReadMessage(); !errors.As(err, &closed) || closed.Code != websocket.CloseProtocolError {
			t.Errorf("%s: %v, want close code 1002", name, err)
		}
		g.waitReleased()
	}
	g.connect("another").alive()
}

func TestCloseWithinItsContext(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.connect("deaf")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := g.server.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close: %v", err)
	}
	g.waitReleased()
}

func TestConnectFloodThenClose(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var flood sync.WaitGroup
	connected := make(chan struct{}, 200)
	for range 100 {
		flood.Go(func() {
			conn, resp, err := websocket.DefaultDialer.Dial(g.url("token="+testToken), nil)
			if err != nil {
				if resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("dial: %v", err)
				}
				return
			}
			defer conn.Close()
			connected <- struct{}{}
			_ = conn.SetReadDeadline(deadline())
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					var closed *websocket.CloseError
					if !errors.As(err, &closed) || closed.Code != ws.CloseRestart.Code() {
						t.Errorf("closed with %v", err)
					}
					return
				}
			}
		})
	}
	for range 20 {
		<-connected
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	must(t, g.server.Close(ctx))
	flood.Wait()
	if g.server.Len() != 0 || len(g.pod.Hub.All()) != 0 {
		t.Fatalf("%d connections, %d sessions remain", g.server.Len(), len(g.pod.Hub.All()))
	}
}

// deafDevice offers the tool swallow, and from then on reads nothing. Its receive buffer is small.
func (g *gateway) deafDevice(session string) *device {
	g.t.Helper()
	small := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}}
	d := g.dialWith(&small, "session_id="+session)
	d.expect("session_start")
	d.send(`{"type":"register_tools","tools":[{"name":"swallow"}]}`)
	d.expect("tools_registered")
	return d
}

// swamp makes n calls with half a megabyte of arguments each.
func (g *gateway) swamp(session string, n int) []<-chan outcome {
	g.t.Helper()
	args := `{"x":"` + strings.Repeat("x", 512<<10) + `"}`
	// Looked up once: the device may be closed before the last of the calls is made.
	route, err := g.pod.Router.Resolve(context.Background(), registry.DefaultTenant, "swallow",
		registry.Target{SessionID: session}, registry.SelectNone)
	must(g.t, err)
	var calls []<-chan outcome
	for range n {
		done := make(chan outcome, 1)
		calls = append(calls, done)
		go func() {
			r, err := g.pod.Router.Call(context.Background(), registry.Call{
				ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(args), Timeout: testTimeout,
			})
			done <- outcome{r, err}
		}()
	}
	return calls
}

// expectLost waits until the calls have ended with their connection, and not by their timeout.
func (g *gateway) expectLost(calls []<-chan outcome) {
	g.t.Helper()
	for _, done := range calls {
		o := await(g.t, done)
		if !errors.Is(o.err, registry.CodeConnectionLost) && !errors.Is(o.err, registry.CodeNotConnected) &&
			!errors.Is(o.err, registry.CodeStaleRoute) { // the device is expected back
			g.t.Fatalf("outcome: %v", o.err)
		}
	}
	g.waitReleased()
	g.connect("another").alive()
}

func TestSlowReaderIsClosedAndItsCallsFail(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.deafDevice("slow")
	g.expectLost(g.swamp("slow", 64)) // 32 MB against an outbox of 4
}

func TestStuckWriterIsCut(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOutbound, c.WriteTimeout = 64<<20, time.Minute })
	g.deafDevice("stuck")
	calls := g.swamp("stuck", 40) // more than the kernel takes
	must(t, g.pod.Hub.Kick(context.Background(), g.session("stuck").Session()))
	g.expectLost(calls) // neither the frames nor the close frame can be written
}

func TestWriteTimeoutEndsTheConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOutbound, c.WriteTimeout = 64<<20, 200*time.Millisecond })
	g.deafDevice("stalled")
	g.expectLost(g.swamp("stalled", 40))
}

func TestSilentPeerIsGone(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.PingInterval, c.PongTimeout = 50*time.Millisecond, 200*time.Millisecond })
	silent := g.connect("silent") // does not read, so it does not answer pings either
	_ = silent
	if s := g.waitReleased(); s.Key.Session != "silent" {
		t.Fatalf("released %s", s.Key.Session)
	}
}

// uses counts how often the use of a credential was noted.
type uses chan struct{}

// NoteUse implements auth.Use.
func (u uses) NoteUse() {
	select {
	case u <- struct{}{}:
	default: // nobody waits for more
	}
}

// A device that is connected uses its credential, also when it does nothing but answer pings.
func TestPongsAreUses(t *testing.T) {
	t.Parallel()
	noted := make(uses)
	g := newGateway(t, func(c *ws.Config) {
		c.PingInterval, c.PongTimeout = 50*time.Millisecond, testTimeout
		c.Auth = auth.AuthenticatorFunc(func(context.Context, *http.Request, string) (auth.Identity, error) {
			return auth.Identity{Tenant: registry.DefaultTenant, Admin: true, Use: noted}, nil
		})
	})
	d := g.connect("quiet")
	must(t, d.conn.SetReadDeadline(time.Time{}))
	go func() { _, _, _ = d.conn.ReadMessage() }() // pings are answered while it reads
	for range 3 {
		select {
		case <-noted:
		case <-time.After(testTimeout):
			t.Fatal("a pong was no use")
		}
	}
}

func TestAnsweringPeerStays(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.PingInterval, c.PongTimeout = 250*time.Millisecond, 12*time.Second // a busy machine stalls for seconds
	})
	d := g.connect("healthy")
	pings := make(chan struct{}, 1000)
	answer := d.conn.PingHandler()
	d.conn.SetPingHandler(func(data string) error {
		pings <- struct{}{}
		return answer(data)
	})
	read := make(chan error, 1)
	must(t, d.conn.SetReadDeadline(time.Time{})) // the one of session_start would end a slow test
	go func() { _, _, err := d.conn.ReadMessage(); read <- err }()
	for range 72 { // one and a half pong timeouts
		select {
		case <-pings:
		case err := <-read:
			t.Fatal(err)
		}
	}
	must(t, d.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"abort"}`)))
	must(t, <-read)
}
