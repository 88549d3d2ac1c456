package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token       = "s3cret-token"
	testTimeout = testkit.Limit
)

// fleet is one or more pods on a common store, each with its HTTP API.
type fleet struct {
	*testing.T
	pods []*pod

	noted chan struct{} // capacity 1: something has become of an approval on some pod
}

type pod struct {
	*routing.Pod
	server *httptest.Server
	log    *logBuffer
}

// setup changes what newFleet builds.
type setup struct {
	pods        int
	maxInFlight int
	history     int64 // routing.PodConfig.HistoryBytes
	policy      agent.PolicyRules
	policyFile  string
	hooks       []agent.Hook
	builtins    *agent.LocalTools
	change      func(*api.Config)
	redis       string // URL of the common store; empty: in memory
}

func newFleet(t *testing.T, s setup) *fleet {
	t.Helper()
	f := &fleet{T: t, noted: make(chan struct{}, 1)}
	memory := memory.New(memory.Options{})
	for i := range max(1, s.pods) {
		var store registry.Store = memory
		var bus interface {
			registry.Bus
			Close(context.Context) error
		} = memory.NewBus()
		if s.redis != "" {
			conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: s.redis})
			f.must(err)
			t.Cleanup(func() { f.must(conn.Close()) })
			store, bus = conn.Store(), conn.Bus()
		}
		p, err := routing.NewPod(routing.PodConfig{
			ID: fmt.Sprintf("pod-%d", i), Store: store, Bus: bus, MaxInFlight: s.maxInFlight,
			HistoryBytes: s.history,
			CheckOutput:  schema.NewValidator().CheckOutput,
		})
		f.must(err)
		f.must(p.Start(t.Context()))
		f.pods = append(f.pods, f.open(p, store, s))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			f.must(p.Close(ctx))
			f.must(bus.Close(ctx))
		})
	}
	return f
}

func (f *fleet) open(p *routing.Pod, store registry.Store, s setup) *pod {
	f.Helper()
	policy, err := agent.NewPolicy(s.policy)
	f.must(err)
	if s.policyFile != "" {
		f.must(policy.Replace([]byte(s.policyFile)))
	}
	origins, err := auth.NewOrigins([]string{"https://console.example.com"}, false)
	f.must(err)
	log := &logBuffer{}
	keeper := approval.New(approval.Config{Store: store, Pods: store, Note: func(a registry.Activity) {
		p.Calls.Note(a)
		select {
		case f.noted <- struct{}{}:
		default: // whoever waits has not looked yet
		}
	}})
	f.Cleanup(keeper.Close)
	invoker := agent.NewInvoker(agent.Config{
		Pod: p.ID(), Router: p.Router, CallLog: p.Calls, Policy: policy, Hooks: s.hooks, LocalTools: s.builtins,
		MaxTimeout: time.Minute, Approvals: keeper,
	})
	keeper.Serve(invoker)
	cfg := api.Config{
		Pod: p.ID(), Version: "1.2.3",
		Invoker: invoker, Approvals: keeper,
		Calls: p.Calls, Directory: store, AuditLog: store, Credentials: store, Usage: store, Kicker: p.Hub,
		Defaults: store, Policy: policy, Auth: auth.NewStaticToken(token),
		Origins:       origins,
		Conversations: store, Turns: p.Turns, History: p.History, Ready: p.Ready, States: store,
		MaxCallTimeout: time.Minute,
		StreamGrace:    testTimeout, // a busy machine changes no status
		Log:            slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Device: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}),
	}
	if s.change != nil {
		s.change(&cfg)
	}
	handler, err := api.NewHandler(cfg)
	f.must(err)
	server := httptest.NewServer(handler)
	f.Cleanup(server.Close)
	return &pod{Pod: p, server: server, log: log}
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// reply is an HTTP response, read to its end and held against the OpenAPI document.
type reply struct {
	*testing.T
	status int
	header http.Header
	body   []byte
	last   bool // the connection closes
}

// request describes one request; the zero fields are the usual: GET, pod 0, the right token.
type request struct {
	method string
	path   string
	body   string
	header http.Header // replaces what is set by default, a nil value removes it
	pod    int
	ctx    context.Context
}

func (f *fleet) send(r request) reply {
	f.Helper()
	resp, err := f.try(r)
	f.must(err)
	return resp
}

func (f *fleet) try(r request) (reply, error) {
	f.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	if r.ctx == nil {
		r.ctx = f.Context()
	}
	server := f.pods[r.pod].server
	req, err := http.NewRequestWithContext(r.ctx, r.method, server.URL+r.path, strings.NewReader(r.body))
	f.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		if req.Header[name] = values; name == "Host" {
			req.Host = values[0]
		}
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	out := reply{T: f.T, status: resp.StatusCode, header: resp.Header, body: body, last: resp.Close}
	checkContract(f.T, req, out)
	return out, nil
}

func (f *fleet) get(path string) reply {
	f.Helper()
	return f.send(request{path: path})
}

func (f *fleet) post(path, body string) reply {
	f.Helper()
	return f.send(request{method: http.MethodPost, path: path, body: body})
}

// decode reads the body of a reply that must have the status.
func decode[T any](r reply, status int) T {
	r.Helper()
	if r.status != status {
		r.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	var v T
	dec := json.NewDecoder(bytes.NewReader(r.body))
	if err := dec.Decode(&v); err != nil {
		r.Fatalf("body %q: %v", r.body, err)
	}
	return v
}

// want checks the status.
func (r reply) want(status int) reply {
	r.Helper()
	if r.status != status {
		r.Errorf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// into reads the body into v.
func (r reply) into(v any) {
	r.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		r.Fatalf("body %q: %v", r.body, err)
	}
}

// problem is an error response as a client reads it.
type problem struct {
	Type, Title, Detail string
	Status              int
	Code                registry.Code
	CallID              string `json:"call_id"`
	Dispatched          registry.Dispatched
	Retryable           *bool
	Errors              []registry.Violation
	Candidates          []registry.Candidate
}

// wantProblem checks status and code of an error response and returns it.
func wantProblem(r reply, status int, code registry.Code) problem {
	r.Helper()
	p := decode[problem](r, status)
	if p.Code != code || p.Status != status {
		r.Fatalf("problem %s, want %s with status %d", r.body, code, status)
	}
	return p
}

// answer is a call's answer as a client reads it.
type answer struct {
	CallID     string `json:"call_id"`
	State      string
	Success    bool
	Output     string
	Structured json.RawMessage
	Error      string
	SessionID  string `json:"session_id"`
	DeviceID   string `json:"device_id"`
	DurationMS int64  `json:"duration_ms"`
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
