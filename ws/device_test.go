package ws_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
)

// device is a hand-driven peer: it sends what the test says and reads one frame at a time.
type device struct {
	t    *testing.T
	conn *websocket.Conn
}

func (g *gateway) dial(session string) *device {
	g.t.Helper()
	return g.dialWith(websocket.DefaultDialer, "session_id="+session)
}

func (g *gateway) dialWith(dialer *websocket.Dialer, query string) *device {
	g.t.Helper()
	header := http.Header{"Authorization": {"Bearer " + testToken}}
	conn, _, err := dialer.Dial(g.url(query), header)
	must(g.t, err)
	return g.newDevice(conn)
}

// newDevice returns the device of a connection that was made. Its pongs wait for a machine that stalls: gorilla's own
// give up after a second, and break the connection.
func (g *gateway) newDevice(conn *websocket.Conn) *device {
	conn.SetPingHandler(func(data string) error {
		_ = conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(testTimeout))
		return nil // an error shows in the next read
	})
	g.t.Cleanup(func() { _ = conn.Close() })
	return &device{t: g.t, conn: conn}
}

// connect dials and reads session_start.
func (g *gateway) connect(session string) *device {
	g.t.Helper()
	d := g.dial(session)
	d.expect("session_start")
	return d
}

// connectWithTools dials and registers tools without parameters.
func (g *gateway) connectWithTools(session string, names ...string) *device {
	g.t.Helper()
	d := g.connect(session)
	tools := make([]map[string]any, len(names))
	for i, n := range names {
		tools[i] = map[string]any{"name": n, "description": "test", "parameters": map[string]any{"type": "object"}}
	}
	frame, err := json.Marshal(map[string]any{"type": "register_tools", "tools": tools})
	must(g.t, err)
	d.send(string(frame))
	if got := d.expect("tools_registered"); got["registered"] != float64(len(names)) {
		g.t.Fatalf("tools_registered: %v", got)
	}
	return d
}

func (d *device) send(text string) {
	d.t.Helper()
	must(d.t, d.conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// next reads one frame.
func (d *device) next() map[string]any {
	d.t.Helper()
	must(d.t, d.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	_, data, err := d.conn.ReadMessage()
	must(d.t, err)
	var frame map[string]any
	must(d.t, json.Unmarshal(data, &frame))
	return frame
}

func (d *device) expect(typ string) map[string]any {
	d.t.Helper()
	frame := d.next()
	if frame["type"] != typ {
		d.t.Fatalf("got %v, want a frame of type %s", frame, typ)
	}
	return frame
}

// expectError reads an error frame of that code whose message contains part.
func (d *device) expectError(code, part string) {
	d.t.Helper()
	frame := d.expect("error")
	if msg, _ := frame["message"].(string); frame["code"] != code || !strings.Contains(msg, part) {
		d.t.Fatalf("got %v, want code %s and a message with %q", frame, code, part)
	}
}

// expectClose reads until the connection ends and checks the close frame.
func (d *device) expectClose(why ws.Close) {
	d.t.Helper()
	d.expectCloseFrame(why.Code(), why.Reason())
}

func (d *device) expectCloseFrame(code int, reason string) {
	d.t.Helper()
	must(d.t, d.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	for {
		_, _, err := d.conn.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) {
			d.t.Fatalf("the connection ended with %v, want %d %q", err, code, reason)
		}
		if closed.Code != code || closed.Text != reason {
			d.t.Fatalf("closed with %d %q, want %d %q", closed.Code, closed.Text, code, reason)
		}
		return
	}
}

// alive checks that the socket is still served.
func (d *device) alive() {
	d.t.Helper()
	d.send(`{"type":"get_registered_tools"}`)
	d.expect("registered_tools")
}
