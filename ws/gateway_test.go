package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/guard"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

const (
	testToken = "correct-token"
	patience  = 10 * time.Second // what a test waits for something that should happen at once
)

// spyStore is the in-memory store with places to look in and to break it.
type spyStore struct {
	registry.Store
	released chan registry.Session
	claim    atomic.Pointer[func() error] // runs before Claim
	put      atomic.Pointer[func() error] // runs before PutTools
}

func (s *spyStore) Claim(ctx context.Context, v registry.Session) (registry.Claim, error) {
	if f := s.claim.Load(); f != nil {
		if err := (*f)(); err != nil {
			return registry.Claim{}, err
		}
	}
	return s.Store.Claim(ctx, v)
}

func (s *spyStore) PutTools(ctx context.Context, v registry.Session, put []registry.ToolSpec, drop []string) error {
	if f := s.put.Load(); f != nil {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return s.Store.PutTools(ctx, v, put, drop)
}

func (s *spyStore) Release(ctx context.Context, v registry.Session) (bool, error) {
	current, err := s.Store.Release(ctx, v)
	s.released <- v
	return current, err
}

// gateway is a pod with its WebSocket door on a real listener.
type gateway struct {
	t      *testing.T
	pod    *registry.Pod
	store  *spyStore
	server *ws.Server
	http   *httptest.Server
}

func newGateway(t *testing.T, changes ...func(*ws.Config)) *gateway {
	t.Helper()
	memory := registry.NewMemory(registry.MemoryOptions{})
	g := &gateway{t: t, store: &spyStore{Store: memory, released: make(chan registry.Session, 4096)}}
	bus := memory.NewBus()
	var err error
	g.pod, err = registry.NewPod(registry.PodConfig{Store: g.store, Bus: bus})
	must(t, err)
	must(t, g.pod.Start(t.Context()))
	policy, err := agent.NewPolicy(agent.PolicyRules{RegisterDeny: []string{"forbidden_*"}})
	must(t, err)
	origins, err := guard.NewOrigins([]string{"https://console.example.com"}, false)
	must(t, err)
	cfg := ws.Config{
		Pod: g.pod, Admission: agent.NewAdmission(policy, agent.NewSchemas(), 0),
		Auth: guard.NewStaticToken(testToken), Origins: origins,
	}
	for _, change := range changes {
		change(&cfg)
	}
	g.server, err = ws.NewServer(cfg)
	must(t, err)
	g.http = httptest.NewServer(g.server)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.server.Close(ctx); err != nil {
			t.Errorf("close the server: %v", err)
		}
		g.http.Close()
		must(t, g.pod.Close(ctx))
		must(t, bus.Close(ctx))
	})
	return g
}

func (g *gateway) url(query string) string {
	return "ws" + strings.TrimPrefix(g.http.URL, "http") + "/ws/chat?" + query
}

// waitReleased waits until a session was released and returns it.
func (g *gateway) waitReleased() registry.Session {
	g.t.Helper()
	select {
	case s := <-g.store.released:
		return s
	case <-time.After(patience):
		g.t.Fatal("no session was released")
		panic("unreachable")
	}
}

type outcome struct {
	result registry.Result
	err    error
}

// call calls a tool of a session and returns where the outcome will be.
func (g *gateway) call(session, tool, args string) <-chan outcome {
	g.t.Helper()
	ctx := context.Background()
	route, err := g.pod.Router.Resolve(ctx, registry.DefaultTenant, tool, registry.Target{SessionID: session}, registry.SelectNone)
	must(g.t, err)
	done := make(chan outcome, 1)
	go func() {
		r, err := g.pod.Router.Call(ctx, registry.Call{
			ID: registry.NewCallID(), Route: route, Args: json.RawMessage(args), Timeout: patience,
		})
		done <- outcome{r, err}
	}()
	return done
}

func await(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(2 * patience):
		t.Fatal("the call did not end")
		panic("unreachable")
	}
}

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
	d := &device{t: g.t, conn: conn}
	g.t.Cleanup(func() { _ = conn.Close() })
	return d
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
	must(d.t, d.conn.SetReadDeadline(time.Now().Add(patience)))
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
	must(d.t, d.conn.SetReadDeadline(time.Now().Add(patience)))
	for {
		_, _, err := d.conn.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) {
			d.t.Fatalf("the connection ended with %v, want %v", err, why)
		}
		if closed.Code != why.Code() || closed.Text != why.Reason() {
			d.t.Fatalf("closed with %d %q, want %v", closed.Code, closed.Text, why)
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

// refusal dials and returns the problem the server refused with.
func (g *gateway) refusal(query string, header http.Header) (status int, problem map[string]any, got http.Header) {
	g.t.Helper()
	conn, resp, err := websocket.DefaultDialer.Dial(g.url(query), header)
	if err == nil {
		_ = conn.Close()
		g.t.Fatal("the server accepted the connection")
	}
	if resp == nil {
		g.t.Fatalf("no response: %v", err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		g.t.Fatalf("content type %q", ct)
	}
	must(g.t, json.NewDecoder(resp.Body).Decode(&problem))
	return resp.StatusCode, problem, resp.Header
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func query(kv ...string) string {
	v := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i], kv[i+1])
	}
	return v.Encode()
}
