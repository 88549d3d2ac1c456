package ws_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

const (
	testToken   = "correct-token"
	testTimeout = testkit.Limit // what a test waits for something that should happen at once
)

// spyStore is the in-memory store with places to look in and to break it.
type spyStore struct {
	registry.Store
	released chan registry.Session
	claim    atomic.Pointer[func() error]         // runs before Claim
	put      atomic.Pointer[func() error]         // runs before SetTools
	move     atomic.Pointer[func(registry.Event)] // runs before MoveCall
}

func (s *spyStore) MoveCall(ctx context.Context, tenant, id string, e registry.Event,
	c registry.Change) (registry.Moved, error) {
	if f := s.move.Load(); f != nil {
		(*f)(e)
	}
	return s.Store.MoveCall(ctx, tenant, id, e, c)
}

func (s *spyStore) Claim(ctx context.Context, v registry.Session) (registry.Claim, error) {
	if f := s.claim.Load(); f != nil {
		if err := (*f)(); err != nil {
			return registry.Claim{}, err
		}
	}
	return s.Store.Claim(ctx, v)
}

func (s *spyStore) SetTools(ctx context.Context, v registry.Session, tools []registry.ToolSpec) error {
	if f := s.put.Load(); f != nil {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return s.Store.SetTools(ctx, v, tools)
}

func (s *spyStore) Release(ctx context.Context, v registry.Session, back time.Duration) (bool, error) {
	current, err := s.Store.Release(ctx, v, back)
	s.released <- v
	return current, err
}

// gateway is a pod with its WebSocket endpoint on a real listener.
type gateway struct {
	t      *testing.T
	pod    *routing.Pod
	store  *spyStore
	server *ws.Server
	http   *httptest.Server
}

func newGateway(t *testing.T, changes ...func(*ws.Config)) *gateway {
	t.Helper()
	return newGatewayOn(t, memory.New(memory.Options{}), changes...)
}

// newGatewayOn is newGateway for a pod of a fleet that shares a store.
func newGatewayOn(t *testing.T, memory *memory.Store, changes ...func(*ws.Config)) *gateway {
	t.Helper()
	g := &gateway{t: t, store: &spyStore{Store: memory, released: make(chan registry.Session, 4096)}}
	bus := memory.NewBus()
	var err error
	g.pod, err = routing.NewPod(routing.PodConfig{
		Store: g.store, Bus: bus, CheckOutput: schema.NewValidator().CheckOutput,
	})
	must(t, err)
	must(t, g.pod.Start(t.Context()))
	origins, err := auth.NewOrigins([]string{"https://console.example.com"}, false)
	must(t, err)
	cfg := ws.Config{
		Pod: g.pod, Admission: newAdmission(t, agent.AdmissionLimits{}),
		Auth: auth.NewStaticToken(testToken), Origins: origins,
	}
	for _, change := range changes {
		change(&cfg)
	}
	g.server, err = ws.NewServer(cfg)
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", g.server)
	mux.Handle("/ws/mcp", g.server.MCP())
	mux.Handle("/ws/node", g.server.Node())
	g.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
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

func newAdmission(t *testing.T, limits agent.AdmissionLimits) *agent.Admission {
	t.Helper()
	policy, err := agent.NewPolicy(agent.PolicyRules{RegisterDeny: []string{"forbidden_*"}})
	must(t, err)
	return agent.NewAdmission(policy, schema.NewValidator(), limits)
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
	case <-time.After(testTimeout):
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
	return g.callContext(context.Background(), session,
		registry.Call{ID: registry.NewCallID(), Args: registry.MustJSON(args)}, tool)
}

func (g *gateway) callContext(ctx context.Context, session string, call registry.Call, tool string) <-chan outcome {
	g.t.Helper()
	var err error
	call.Timeout = cmp.Or(call.Timeout, testTimeout)
	call.Route, err = g.pod.Router.Resolve(ctx, registry.DefaultTenant, tool, registry.Target{SessionID: session},
		registry.SelectNone)
	must(g.t, err)
	done := make(chan outcome, 1)
	go func() {
		r, err := g.pod.Router.Call(ctx, call)
		done <- outcome{r, err}
	}()
	return done
}

// callDurable calls a tool by a call that has a record.
func (g *gateway) callDurable(session, tool string) (id string, done <-chan outcome) {
	g.t.Helper()
	rec := registry.NewRecord(registry.NewCallID(), registry.DefaultTenant, tool, json.RawMessage(`{}`))
	rec.SessionID, rec.TimeoutMS = session, testTimeout.Milliseconds()
	_, created, err := g.store.CreateCall(context.Background(), rec)
	if err != nil || !created {
		g.t.Fatalf("create the record: %v, %v", created, err)
	}
	return rec.CallID, g.callContext(context.Background(), session, registry.Call{ID: rec.CallID, Durable: true}, tool)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, what, holds)
}

func await(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(2 * testTimeout):
		t.Fatal("the call did not end")
		panic("unreachable")
	}
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
