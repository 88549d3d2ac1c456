package ws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// living is a device that reads all the time, so that it answers pings.
type living struct {
	*device
	frames chan map[string]any
	ended  chan error
}

func (d *device) live() *living {
	l := &living{device: d, frames: make(chan map[string]any, 1024), ended: make(chan error, 1)}
	_ = d.conn.SetReadDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, data, err := d.conn.ReadMessage()
			if err != nil {
				l.ended <- err
				l.frames <- map[string]any{}
				return
			}
			var frame map[string]any
			if json.Unmarshal(data, &frame) == nil {
				l.frames <- frame
			}
		}
	}()
	d.t.Cleanup(func() {
		_ = d.conn.Close()
		<-done
	})
	return l
}

// await returns the next frame of a type, and skips others.
func (l *living) await(typ string) map[string]any {
	l.t.Helper()
	limit := time.After(testTimeout)
	for {
		select {
		case f := <-l.frames:
			if f["type"] == typ {
				return f
			}
			if f["type"] == nil {
				l.t.Fatalf("the connection ended before a %s", typ)
			}
		case <-limit:
			l.t.Fatalf("no %s", typ)
		}
	}
}

// closedWith checks how the connection ends.
func (l *living) closedWith(why ws.Close) {
	l.t.Helper()
	select {
	case err := <-l.ended:
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != why.Code() || closed.Text != why.Reason() {
			l.t.Fatalf("ended with %v, want %v", err, why)
		}
	case <-time.After(testTimeout):
		l.t.Fatalf("not closed with %v", why)
	}
}

// present connects a device that says this of itself, and offers the tool "own".
func (g *gateway) present(session, connect string) *living {
	g.t.Helper()
	d := g.dial(session).live()
	if connect != "" {
		d.send(connect)
	}
	// It may have been refused by now.
	_ = d.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"register_tools","tools":[{"name":"own"}]}`))
	return d
}

// held connects a device and waits until it has the session.
func (g *gateway) held(session, connect string) (d *living, token string) {
	g.t.Helper()
	d = g.present(session, connect)
	token, _ = d.await("session_start")["resume_token"].(string)
	d.await("tools_registered")
	return d, token
}

// answers checks that calls of the session reach this device.
func (l *living) answers(g *gateway, session string) {
	l.t.Helper()
	done := g.call(session, "own", `{}`)
	id := l.await("tool_call_request")["id"].(string)
	l.send(`{"type":"tool_result","id":"` + id + `","output":"mine"}`)
	if o := await(l.t, done); o.err != nil || o.result.Output != "mine" {
		l.t.Fatalf("call: %+v", o)
	}
}

// oneAndTwoPods runs a test with both devices on one pod, and with each on a pod of its own.
func oneAndTwoPods(t *testing.T, test func(t *testing.T, holders, claimers *gateway)) {
	t.Run("one pod", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t)
		test(t, g, g)
	})
	t.Run("two pods", func(t *testing.T) {
		t.Parallel()
		memory := memory.New(memory.Options{})
		test(t, newGatewayOn(t, memory), newGatewayOn(t, memory))
	})
}

// TestAnotherDeviceIsRefused: a connection that does not say that it is the device that has the session, or cannot
// prove it, does not get it while that device answers.
func TestAnotherDeviceIsRefused(t *testing.T) {
	t.Parallel()
	const named = `{"type":"connect","device_id":"d1"}`
	const keeps = `{"type":"connect","device_id":"d1","capabilities":["resume_token"]}`
	for name, tc := range map[string]struct{ holder, claimer string }{
		"another name":                  {named, `{"type":"connect","device_id":"evil"}`},
		"no name":                       {named, `{"type":"connect"}`},
		"no connect":                    {named, ""},
		"an empty name":                 {named, `{"type":"connect","device_id":""}`},
		"the name of who keeps a token": {keeps, named},
		"a made-up token": {keeps,
			`{"type":"connect","device_id":"d1","resume_token":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`},
		"no name, and a token is kept": {`{"type":"connect","capabilities":["resume_token"]}`, `{"type":"connect"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
				holder, _ := a.held("mine", tc.holder)
				evil := b.present("mine", tc.claimer)
				evil.await("session_start")
				if e := evil.await("error"); e["code"] != "SESSION_OWNER_MISMATCH" {
					t.Fatalf("error: %v", e)
				}
				evil.closedWith(ws.CloseOwnerMismatch)
				holder.answers(a, "mine")
				holder.answers(b, "mine")
			})
		})
	}
}

// TestSilentClaimIsRefused: a device that sends nothing does not get the session either.
func TestSilentClaimIsRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	holder, _ := g.held("mine", `{"type":"connect","device_id":"d1"}`)
	silent := g.dial("mine").live()
	silent.await("session_start")
	silent.closedWith(ws.CloseOwnerMismatch)
	holder.answers(g, "mine")
}

// TestTheSameDeviceGetsItsSession: the claims that always worked.
func TestTheSameDeviceGetsItsSession(t *testing.T) {
	t.Parallel()
	const named = `{"type":"connect","device_id":"d1"}`
	for name, tc := range map[string]struct{ holder, claimer string }{
		"no names":                    {"", ""},
		"no names, with connect":      {`{"type":"connect"}`, `{"type":"connect"}`},
		"one that names itself later": {"", named},
		"the same name":               {named, named},
		"no name, and it could resume": {`{"type":"connect","capabilities":["resume"]}`,
			`{"type":"connect","capabilities":["resume"]}`},
		"no name, and it is silent then": {`{"type":"connect","capabilities":["resume"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
				holder, _ := a.held("mine", tc.holder)
				next, _ := b.held("mine", tc.claimer)
				holder.closedWith(ws.CloseReplaced)
				next.answers(a, "mine")
				next.answers(b, "mine")
			})
		})
	}
}

// TestTheTokenProvesTheDevice: with the token it gets its session back while its old connection seems to live, whatever
// its name, and with it the calls in flight.
func TestTheTokenProvesTheDevice(t *testing.T) {
	t.Parallel()
	oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
		const caps = `"device_id":"d1","capabilities":["resume","resume_token"]`
		old, token := a.held("mine", `{"type":"connect",`+caps+`}`)
		done := a.call("mine", "own", `{}`)
		id := old.await("tool_call_request")["id"].(string)
		back, _ := b.held("mine", `{"type":"connect",`+caps+`,"resume_token":"`+token+`"}`)
		old.closedWith(ws.CloseReplaced)
		back.send(`{"type":"tool_result","id":"` + id + `","output":"kept"}`)
		if ack := back.await("result_acknowledged"); ack["ignored"] == true {
			t.Fatal("ignored")
		}
		if o := await(t, done); o.err != nil || o.result.Output != "kept" {
			t.Fatalf("call: %+v", o)
		}
		// the same token, as often as it likes
		again, _ := a.held("mine", `{"type":"connect",`+caps+`,"resume_token":"`+token+`"}`)
		back.closedWith(ws.CloseReplaced)
		again.answers(b, "mine")
	})
}

// TestDeadHolderLoses: a device whose connection is half open does not answer, and another one gets the session; but
// not its calls.
func TestDeadHolderLoses(t *testing.T) {
	t.Parallel()
	oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
		dead := a.dial("mine")
		dead.send(`{"type":"connect","device_id":"d1","capabilities":["resume"]}`)
		dead.send(`{"type":"register_tools","tools":[{"name":"own"}]}`)
		for range 3 {
			dead.next()
		}
		done := a.call("mine", "own", `{}`)
		id := dead.expect("tool_call_request")["id"].(string) // and reads nothing from here on
		other, _ := b.held("mine", `{"type":"connect","device_id":"d2","capabilities":["resume"]}`)
		other.send(`{"type":"tool_result","id":"` + id + `","output":"forged"}`)
		if ack := other.await("result_acknowledged"); ack["ignored"] != true {
			t.Error("the answer of another device counts")
		}
		if o := await(t, done); !errors.Is(o.err, registry.CodeConnectionLost) &&
			!errors.Is(o.err, registry.CodeTimeout) {
			t.Fatalf("call: %+v", o)
		}
		other.answers(b, "mine")
	})
}

// TestWhoCannotProveIt: a device that can resume, and does not keep its token, may answer what its connection before
// was asked if that is gone and was as nameless, or had the same name.
func TestWhoCannotProveIt(t *testing.T) {
	t.Parallel()
	connect := func(device string) string {
		if device == "" {
			return `{"type":"connect","capabilities":["resume"]}`
		}
		return `{"type":"connect","capabilities":["resume"],"device_id":"` + device + `"}`
	}
	for _, tc := range []struct {
		old, next string
		gone      bool // the old connection is closed before
		counts    bool
	}{
		{"", "", true, true}, {"d1", "d1", true, true}, {"d1", "d2", true, false}, {"d1", "", true, false}, {"", "d1",
			true, false},
		{"", "", false, false}, {"d1", "d1", false, false},
	} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			t.Parallel()
			oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
				old, _ := a.held("mine", connect(tc.old))
				done := a.call("mine", "own", `{}`)
				id := old.await("tool_call_request")["id"].(string)
				if tc.gone {
					must(t, old.conn.NetConn().Close())
					a.waitReleased()
				}
				next, _ := b.held("mine", connect(tc.next))
				next.send(`{"type":"tool_result","id":"` + id + `","output":"answer"}`)
				if ack := next.await("result_acknowledged"); (ack["ignored"] != true) != tc.counts {
					t.Errorf("acknowledged with %v", ack)
				}
				if o := await(t, done); (o.err == nil) != tc.counts {
					t.Errorf("call: %+v", o)
				}
			})
		})
	}
}

// TestSquatterGivesTheSessionBack: a device that takes a session while its owner is away keeps it from others, but not
// from that device.
func TestSquatterGivesTheSessionBack(t *testing.T) {
	t.Parallel()
	oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
		const keeps = `"capabilities":["resume_token"]`
		owner, token := a.held("mine", `{"type":"connect",`+keeps+`}`)
		must(t, owner.conn.NetConn().Close())
		a.waitReleased()
		squatter, his := b.held("mine", `{"type":"connect","device_id":"evil",`+keeps+`}`)
		squatter.answers(b, "mine")
		// He comes again and again, with his own token and without, to have the owner forgotten.
		for i := range 6 {
			connect := `{"type":"connect","device_id":"evil",` + keeps + `,"resume_token":"` + his + `"}`
			if i%2 == 1 {
				must(t, squatter.conn.NetConn().Close())
				b.waitReleased()
				connect = `{"type":"connect","device_id":"evil",` + keeps + `}`
			}
			var next string
			squatter, next = b.held("mine", connect)
			if i%2 == 1 {
				his = next
			} else {
				b.waitReleased()
			}
		}
		back, _ := a.held("mine", `{"type":"connect",`+keeps+`,"resume_token":"`+token+`"}`)
		squatter.closedWith(ws.CloseReplaced)
		back.answers(b, "mine")
		refused := b.present("mine", `{"type":"connect","device_id":"evil",`+keeps+`,"resume_token":"`+his+`"}`)
		refused.await("error")
		refused.closedWith(ws.CloseOwnerMismatch)
		back.answers(a, "mine")
	})
}

// TestConnectNamesTheSession: where the URL does not.
func TestConnectNamesTheSession(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, id := range []string{"android:1", "user@host"} {
		d := g.dialWith(websocket.DefaultDialer, query("name", "Pixel")).live()
		made := d.await("session_start")["session_id"].(string)
		d.send(`{"type":"connect","session_id":"` + id + `","device_name":"Pixel 9"}`)
		d.send(`{"type":"register_tools","tools":[{"name":"own"}]}`)
		if c := d.await("connected"); c["session_id"] != id || c["resumed"] != false || c["name"] != "Pixel" {
			t.Fatalf("connected: %v", c)
		}
		d.await("tools_registered")
		d.answers(g, id)
		if s := g.waitReleased(); s.Key.Session != made {
			t.Fatalf("released %s, want %s", s.Key.Session, made)
		}
		if s := g.session(id).Session(); s.DeviceName != "Pixel 9" || s.Name != "Pixel" {
			t.Fatalf("session: %+v", s)
		}
		d.send(`{"type":"connect","session_id":"another"}`) // once is enough
		d.closedWith(ws.CloseOwnerMismatch)
		g.waitReleased()
	}
	bad := g.dialWith(websocket.DefaultDialer, "").live()
	bad.send(`{"type":"connect","session_id":"a/b"}`)
	if e := bad.await("error"); e["code"] != "INVALID_MESSAGE" {
		t.Fatalf("error: %v", e)
	}
	bad.closedWith(ws.CloseOwnerMismatch) // an open socket would belong to a device that never introduced itself
	holder, _ := g.held("taken", `{"type":"connect","device_id":"d1"}`)
	evil := g.dialWith(websocket.DefaultDialer, "").live()
	evil.send(`{"type":"connect","session_id":"taken"}`)
	evil.await("error")
	evil.closedWith(ws.CloseOwnerMismatch)
	holder.answers(g, "taken")
}

// TestForgedAnswerIsNotRecorded: the record of a call is as safe from another device as its caller is.
func TestForgedAnswerIsNotRecorded(t *testing.T) {
	t.Parallel()
	oneAndTwoPods(t, func(t *testing.T, a, b *gateway) {
		old, token := a.held("mine", `{"type":"connect","device_id":"d1","capabilities":["resume","resume_token"]}`)
		id, done := a.callDurable("mine", "own")
		old.await("tool_call_request")
		must(t, old.conn.NetConn().Close())
		a.waitReleased()
		other, _ := b.held("mine", `{"type":"connect","device_id":"d2","capabilities":["resume"]}`)
		other.send(`{"type":"tool_result","id":"` + id + `","output":"forged"}`)
		other.await("result_acknowledged")
		if r, err := a.store.ReadCall(t.Context(), registry.DefaultTenant, id); err != nil || r.State.Final() {
			t.Fatalf("record: %+v, %v", r, err)
		}
		back, _ := b.held("mine",
			`{"type":"connect","device_id":"d1","capabilities":["resume","resume_token"],"resume_token":"`+token+`"}`)
		other.closedWith(ws.CloseReplaced)
		back.send(`{"type":"tool_result","id":"` + id + `","output":"true"}`)
		back.await("result_acknowledged")
		if o := await(t, done); o.err != nil || o.result.Output != "true" {
			t.Errorf("call: %+v", o)
		}
		if r, err := a.store.ReadCall(t.Context(), registry.DefaultTenant, id); err != nil || r.Result == nil ||
			r.Result.Output != "true" {
			t.Errorf("record: %+v, %v", r, err)
		}
	})
}
