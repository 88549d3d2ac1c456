package ws_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// Who does not prove to be the node it says it is, just now and here, is refused with the protocol's code.
func TestNodeProvesItsKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	key, other := newKey(t), newKey(t)
	forged := key
	forged.Public, forged.ID = other.Public, other.ID // signed with the key of another one
	token := map[string]string{"token": testToken}
	for name, c := range map[string]struct {
		connect      nodetest.Connect
		code, detail string
		closed       int
	}{
		"replayed": {nodetest.Connect{Key: key, Nonce: "of an earlier connection", Auth: token},
			"INVALID_REQUEST", "DEVICE_AUTH_NONCE_MISMATCH", 1008},
		"slow clock": {nodetest.Connect{Key: key, At: time.Now().Add(-3 * time.Minute), Auth: token},
			"INVALID_REQUEST", "DEVICE_AUTH_SIGNATURE_EXPIRED", 1008},
		"fast clock": {nodetest.Connect{Key: key, At: time.Now().Add(3 * time.Minute), Auth: token},
			"INVALID_REQUEST", "DEVICE_AUTH_SIGNATURE_EXPIRED", 1008},
		"wrong key": {nodetest.Connect{Key: forged, Auth: token},
			"INVALID_REQUEST", "DEVICE_AUTH_SIGNATURE_INVALID", 1008},
		"another id": {nodetest.Connect{Key: key, Auth: token, Device: map[string]any{"id": other.ID}},
			"INVALID_REQUEST", "DEVICE_AUTH_DEVICE_ID_MISMATCH", 1008},
		"no key": {nodetest.Connect{Key: key, Auth: token, Device: map[string]any{"publicKey": "AAAA"}},
			"INVALID_REQUEST", "DEVICE_AUTH_PUBLIC_KEY_INVALID", 1008},
		"no nonce": {nodetest.Connect{Key: key, Auth: token, Device: map[string]any{"nonce": nil}},
			"INVALID_REQUEST", "DEVICE_AUTH_NONCE_REQUIRED", 1008},
		"no device": {nodetest.Connect{Key: key, Auth: token, Params: map[string]any{"device": nil}},
			"NOT_PAIRED", "DEVICE_IDENTITY_REQUIRED", 1008},
		"operator": {nodetest.Connect{Key: key, Auth: token, Role: "operator"}, "INVALID_REQUEST", "", 1008},
		"newer": {nodetest.Connect{Key: key, Auth: token, Min: 5, Max: 6},
			"INVALID_REQUEST", "PROTOCOL_MISMATCH", 1002},
		"older": {nodetest.Connect{Key: key, Auth: token, Min: 1, Max: 2},
			"INVALID_REQUEST", "PROTOCOL_MISMATCH", 1002},
		"program": {nodetest.Connect{Key: key, Auth: token, ClientID: "mine"}, "INVALID_REQUEST", "", 1008},
		"wrong token": {nodetest.Connect{Key: key, Auth: map[string]string{"token": "wrong"}},
			"INVALID_REQUEST", "AUTH_TOKEN_MISMATCH", 1008},
		"wrong device token": {nodetest.Connect{Key: key, Auth: map[string]string{"deviceToken": "wrong"}},
			"INVALID_REQUEST", "AUTH_TOKEN_MISSING", 1008},
		"no token": {nodetest.Connect{Key: key}, "INVALID_REQUEST", "AUTH_TOKEN_MISSING", 1008},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gateway{t: t, pod: g.pod, store: g.store, server: g.server, http: g.http}
			p, nonce := g.dialNode(key)
			if c.connect.Nonce == "" {
				c.connect.Nonce = nonce
			}
			p.send(string(c.connect.Frame()))
			p.refused(c.code, c.detail, c.closed)
		})
	}
	if s := g.server.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open", s.Open)
	}
}

// Both versions of the signature are known, and both of the protocol.
func TestNodeVersions(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, c := range []nodetest.Connect{{Payload: "v2"}, {Min: 3, Max: 3}, {Min: 3, Max: 4}, {Min: 4, Max: 9}} {
		c.Key, c.Auth, c.Commands = newKey(t), map[string]string{"token": testToken}, []string{"acme.look"}
		p, nonce := g.dialNode(c.Key)
		c.Nonce = nonce
		p.send(string(c.Frame()))
		hello, _ := p.response("1:connect")["payload"].(map[string]any)
		want := min(max(c.Max, 3), 4)
		if c.Max != 0 && hello["protocol"] != float64(want) || hello["type"] != "hello-ok" {
			t.Errorf("%+v: %v", c, hello)
		}
	}
}

// What is no connect frame ends the socket, and is answered if it has an id.
func TestNodeFirstFrame(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	begin := `{"type":"req","id":"1:connect","method":`
	for frame, want := range map[string]string{
		`"node.event","params":{}}`: "first request must be connect",
		`"connect"}`:                "invalid connect params",
		`"connect","params":{"minProtocol":4,"maxProtocol":4}}`: "client",
	} {
		p, _ := g.dialNode(newKey(t))
		p.send(begin + frame)
		if f := p.refused("INVALID_REQUEST", "", 1008); !strings.Contains(fmt.Sprint(f["message"]), want) {
			t.Errorf("%s: %v", frame, f)
		}
	}
	p, _ := g.dialNode(newKey(t))
	p.send(`[1]`)
	p.response("invalid")
	p.closed(websocket.ClosePolicyViolation, "")
}

// Handshakes are bounded: by the size of the first frame, by all they send before it is complete, and by time.
func TestNodeHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	big, _ := g.dialNode(newKey(t))
	big.send(strings.Repeat("x", 64<<10+1))
	big.closed(websocket.CloseMessageTooBig, "")
	big, _ = g.dialNode(newKey(t))
	big.send(strings.Repeat("x", 200<<10))
	must(t, big.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	if _, err := io.ReadAll(big.conn.NetConn()); err != nil { // a reset may overtake the close frame
		t.Errorf("the socket ended with %v", err)
	}

	many, _ := g.dialNode(newKey(t))
	for range 700 { // pings, which are no part of a message
		ping := bytes.Repeat([]byte("x"), 125)
		if many.conn.WriteControl(websocket.PingMessage, ping, time.Now().Add(time.Second)) != nil {
			break
		}
	}
	many.closed(websocket.CloseMessageTooBig, "")

	g = newGateway(t, func(c *ws.Config) { c.MessageTimeout = 300 * time.Millisecond })
	silent, _ := g.dialNode(newKey(t))
	silent.closed(websocket.ClosePolicyViolation, "connect timeout")

	unfinished, _ := g.dialNode(newKey(t))
	_, err := unfinished.conn.NetConn().Write([]byte{0x81, 0xfe, 0x10, 0x00, 1, 2, 3, 4, 'x'})
	must(t, err)
	unfinished.closed(websocket.ClosePolicyViolation, "connect timeout")
	eventually(t, "no place is held", func() bool { return g.server.Pools()["node_handshakes"].Held == 0 })
}

// Handshakes of one source cannot keep others out, and their sockets are no connections.
func TestNodeHandshakesAreShared(t *testing.T) {
	t.Parallel()
	sources, err := auth.NewSources([]string{"127.0.0.1/32", "::1/128"})
	must(t, err)
	g := newGateway(t, func(c *ws.Config) { c.Sources = sources })
	from := func(address string) http.Header { return http.Header{"X-Forwarded-For": {address}} }
	other := testkit.Alone(t, "OpenClaw nodes that have not said who they are", func() error {
		conn, _, err := websocket.DefaultDialer.Dial(g.nodeURL(), from("198.51.100.7"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	flood := 0
	for ; flood < 600; flood++ {
		conn, resp, err := websocket.DefaultDialer.Dial(g.nodeURL(), from("203.0.113.7"))
		if err != nil {
			if resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
				t.Fatalf("refused with %v", err)
			}
			break
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if flood != 256 {
		t.Errorf("one source held %d of 512 places", flood)
	}
	if status := g.upgradeRefused(from("203.0.113.7")); status != http.StatusTooManyRequests {
		t.Errorf("it was answered with %d", status)
	}
	other.Crowded()
	if s := g.server.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open", s.Open)
	}
}

// The flood of one socket is slowed and ended as that of any device.
func TestNodeFloods(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 50, 100 })
	p := g.connectNode(newKey(t))
	for i := range 400 {
		frame := fmt.Sprintf(`{"type":"req","id":"%d","method":"node.event","params":{"event":"x"}}`, i)
		if p.conn.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
			break
		}
	}
	p.closed(websocket.ClosePolicyViolation, "rate_limited")
}

// Frames are as large as hello-ok says. An output that is larger than a result may be fails its call only.
func TestNodeLargeFrames(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxNodeFrame, c.MaxFrame, c.MaxOutput = 2<<20, 64<<10, 512<<10 })
	key := newKey(t)
	p := g.connectNode(key, "acme.look")
	done := g.call(key.ID, "acme_look", `{"bins":["sh"]}`)
	id, _ := p.invoked("acme.look")
	f := p.response(p.result(id, `"ok":true,"payload":{"bins":{"x":"`+strings.Repeat("y", 1<<20)+`"}}`))
	if f["ok"] != false {
		t.Errorf("the answer to a result that is too large: %.200v", f)
	}
	if o := await(t, done); registry.AsError(o.err).Code != registry.CodeInvalidResult {
		t.Errorf("%.300v", o)
	}
	p.ask("node.event", `{"event":"x"}`)
	p.send(`{"type":"req","id":"1","method":"x","params":"` + strings.Repeat("y", 2<<20) + `"}`)
	p.closed(websocket.CloseMessageTooBig, "")
}

// A message that is not finished in time ends the connection, as that of any device.
func TestNodeUnfinishedFrame(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MessageTimeout = 300 * time.Millisecond })
	p := g.connectNode(newKey(t))
	_, err := p.conn.NetConn().Write([]byte{0x81, 0xfe, 0x10, 0x00, 1, 2, 3, 4, 'x'})
	must(t, err)
	p.closed(websocket.ClosePolicyViolation, "message_timeout")
}

// joined holds back what is written, to write it together.
type joined struct {
	net.Conn
	hold bool
	text []byte
}

func (j *joined) Write(p []byte) (int, error) {
	if j.hold {
		j.text = append(j.text, p...)
		return len(p), nil
	}
	return j.Conn.Write(p)
}

// What a node sends together with its connect frame, or before the answer, is handled by its connection.
func TestNodeSendsEarly(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var socket *joined
	dialer := websocket.Dialer{NetDial: func(network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		socket = &joined{Conn: conn}
		return socket, err
	}}
	conn, _, err := dialer.Dial(g.nodeURL(), nil)
	must(t, err)
	key := newKey(t)
	p := &nodePeer{device: g.newDevice(conn), key: key}
	nonce, _ := p.event("connect.challenge")["nonce"].(string)
	socket.hold = true
	p.send(string(nodetest.Connect{Key: key, Nonce: nonce, Auth: map[string]string{"token": testToken}}.Frame()))
	const early = 40 // more than one buffer
	ids := make([]string, early)
	for i := range ids {
		ids[i] = p.request("node.event", `{"event":"early"}`)
	}
	socket.hold = false
	_, err = socket.Conn.Write(socket.text)
	must(t, err)
	if f := p.response("1:connect"); f["ok"] != true {
		t.Fatalf("not welcome: %v", f)
	}
	for _, id := range ids {
		p.response(id)
	}
	p.ask("node.event", `{"event":"later"}`)
}
