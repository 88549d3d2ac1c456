package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// drainTime is how long the pods of these tests have to stop.
const drainTime = 10 * time.Second

// drain closes the server within a time. It returns once upgrades are refused.
func (g *gateway) drain(within time.Duration) <-chan error {
	g.t.Helper()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		closed <- g.server.Close(ctx)
	}()
	eventually(g.t, "upgrades are refused", func() bool {
		conn, resp, err := websocket.DefaultDialer.Dial(g.url("token="+testToken), nil)
		if err == nil {
			_ = conn.Close()
		}
		return resp != nil && resp.StatusCode == http.StatusServiceUnavailable
	})
	return closed
}

func TestDrainLetsCallsFinish(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	idle := g.connect("idle")
	d := g.connectWithTools("working", "echo")
	first := g.call("working", "echo", `{}`)
	id := d.expect("tool_call_request")["id"].(string)
	closed := g.drain(drainTime)
	idle.expectClose(ws.CloseRestart)
	// The socket stays, and takes more calls while it does.
	second := g.call("working", "echo", `{}`)
	other := d.expect("tool_call_request")["id"].(string)
	for _, id := range []string{id, other} {
		d.send(`{"type":"tool_result","id":"` + id + `","output":"done"}`)
		d.expect("result_acknowledged")
	}
	d.expectClose(ws.CloseRestart)
	for _, done := range []<-chan outcome{first, second} {
		if o := await(t, done); o.err != nil || o.result.Output != "done" {
			t.Fatalf("outcome: %+v", o)
		}
	}
	must(t, receive(t, closed))
}

func TestDrainWaitsForTheAcknowledgement(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("storing", "echo")
	id, done := g.callDurable("storing", "echo")
	d.expect("tool_call_request")
	storing, release := make(chan struct{}), make(chan struct{})
	slow := func(e registry.Event) {
		if e == registry.EventSucceed {
			close(storing)
			<-release
		}
	}
	g.store.move.Store(&slow)
	d.send(`{"type":"tool_result","id":"` + id + `","output":"done"}`)
	receive(t, storing)
	closed := g.drain(drainTime)
	d.alive()
	close(release)
	d.expect("result_acknowledged")
	d.expectClose(ws.CloseRestart)
	must(t, receive(t, closed))
	must(t, await(t, done).err)
}

func TestDrainCutOff(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connectWithTools("stubborn", "echo")
	lost := g.call("stubborn", "echo", `{}`)
	d.expect("tool_call_request")
	begin := time.Now()
	const within = 20 * time.Second // of which a busy machine may stall for some
	closed := g.drain(within)
	// Towards the end new calls are refused, while those in flight may still end.
	var refused *registry.Error
	eventually(t, "a call is refused", func() bool {
		short := registry.Call{ID: registry.NewCallID(), Args: registry.MustJSON(`{}`), Timeout: 100 * time.Millisecond}
		o := await(t, g.callContext(t.Context(), "stubborn", short, "echo"))
		return errors.As(o.err, &refused) && refused.Code != registry.CodeTimeout // else it was delivered
	})
	if refused.Code != registry.CodeNotConnected || refused.Dispatched != registry.DispatchedNo {
		t.Fatalf("refused: %+v", refused)
	}
	d.expectClose(ws.CloseRestart)
	if took := time.Since(begin); took < within*3/5 {
		t.Fatalf("closed after %v", took)
	}
	if o := await(t, lost); !errors.Is(o.err, registry.CodeConnectionLost) {
		t.Fatalf("outcome: %+v", o)
	}
	must(t, receive(t, closed))
}

func TestDrainIsSpread(t *testing.T) {
	t.Parallel()
	const devices, within = 40, 2 * time.Second
	g := newGateway(t)
	type departure struct {
		at    time.Time
		delay time.Duration // to wait
	}
	departures := make([]departure, devices)
	var all sync.WaitGroup
	for i := range devices {
		d := g.connect(fmt.Sprintf("d%d", i))
		d.send(`{"type":"connect","capabilities":["drain"]}`)
		d.expect("connected")
		all.Go(func() {
			_ = d.conn.SetReadDeadline(deadline())
			for {
				_, data, err := d.conn.ReadMessage()
				if err != nil {
					var closed *websocket.CloseError
					if !errors.As(err, &closed) || closed.Code != ws.CloseRestart.Code() {
						t.Errorf("closed with %v", err)
					}
					departures[i].at = time.Now()
					return
				}
				var frame struct {
					Type         string
					RetryAfterMS int64 `json:"retry_after_ms"`
				}
				if json.Unmarshal(data, &frame) != nil || frame.Type != "server_draining" || departures[i].delay != 0 {
					t.Errorf("got %s", data)
				}
				departures[i].delay = time.Duration(frame.RetryAfterMS) * time.Millisecond
			}
		})
	}
	begin := time.Now()
	must(t, receive(t, g.drain(within)))
	all.Wait()
	late := 0
	for i, d := range departures {
		if d.delay > within/2+250*time.Millisecond {
			t.Errorf("device %d was asked to wait %v", i, d.delay)
		}
		if d.at.Sub(begin) > within/4 {
			late++
		}
		if gap := begin.Add(d.delay).Sub(d.at); gap > time.Second {
			t.Errorf("device %d left after %v, %v before it may come back", i, d.at.Sub(begin), gap)
		}
	}
	if late < devices/4 {
		t.Fatalf("only %d did not leave at once", late)
	}
}

// TestDrainUnderLoad: as long as devices answer in time, a drain costs no call that was dispatched.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	const devices, callersEach = 8, 3
	g := newGateway(t)
	var work sync.WaitGroup
	var answered, refused atomic.Int64
	warm := make(chan struct{}, devices*callersEach*1000)
	for i := range devices {
		session := fmt.Sprintf("d%d", i)
		d := g.connectWithTools(session, "echo")
		work.Go(func() { answerAll(d.conn) })
		for range callersEach {
			work.Go(func() {
				for {
					route, err := g.pod.Router.Resolve(context.Background(), registry.DefaultTenant, "echo",
						registry.Target{SessionID: session}, registry.SelectNone)
					if err != nil {
						return // the session is released
					}
					_, err = g.pod.Router.Call(context.Background(), registry.Call{
						ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(`{}`), Timeout: testTimeout,
					})
					var failed *registry.Error
					switch {
					case err == nil:
						answered.Add(1)
						select {
						case warm <- struct{}{}:
						default:
						}
					case errors.As(err, &failed) && failed.Dispatched == registry.DispatchedNo:
						refused.Add(1)
						return
					default:
						t.Errorf("outcome: %v", err)
						return
					}
				}
			})
		}
	}
	for range 200 {
		receive(t, warm)
	}
	must(t, receive(t, g.drain(3*time.Second)))
	work.Wait()
	t.Logf("%d answered, %d refused", answered.Load(), refused.Load())
}

// answerAll answers every call until the connection ends.
func answerAll(conn *websocket.Conn) {
	for {
		var frame struct{ Type, ID string }
		if conn.ReadJSON(&frame) != nil {
			return
		}
		if frame.Type == "tool_call_request" {
			_ = conn.WriteJSON(map[string]any{"type": "tool_result", "id": frame.ID, "output": "x"})
		}
	}
}
