package metrics_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// testPod is a pod whose metrics are read over HTTP.
type testPod struct {
	testing.TB
	*routing.Pod
	set  *metrics.Set
	http *httptest.Server
}

func newTestPod(t testing.TB) *testPod {
	t.Helper()
	p := &testPod{TB: t, set: metrics.New([]string{"gpt"}, "v1")}
	store := memory.New(memory.Options{})
	bus := store.NewBus()
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	p.must(err)
	origins, err := auth.NewOrigins(nil, false)
	p.must(err)
	p.Pod, err = routing.NewPod(routing.PodConfig{ID: "pod", Store: store, Bus: bus})
	p.must(err)
	p.must(p.Start(t.Context()))
	refusals := auth.NewRefusals(auth.Sources{}, slog.New(slog.DiscardHandler))
	devices, err := ws.NewServer(ws.Config{
		Pod: p.Pod, Admission: agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{}),
		Auth: auth.Anonymous{}, Origins: origins,
	})
	p.must(err)
	handler, err := api.NewHandler(api.Config{
		Approvals: struct{ api.Approvals }{},
		Pod:       "pod", Calls: p.Calls, Directory: store, Conversations: store,
		AuditLog: store, Credentials: store, Usage: store, Kicker: p.Hub, Turns: p.Turns,
		Policy: policy,
		Auth:   auth.Anonymous{}, Origins: origins,
		Invoker: agent.NewInvoker(agent.Config{
			Router: p.Router, CallLog: p.Calls, Policy: policy, Pod: "pod", Meter: p.set.Calls,
		}),
		Metrics: p.set.Handler(), Meter: p.set.HTTP, Device: devices,
	})
	p.must(err)
	connections := make(map[string]int64)
	p.set.Watch(metrics.Pod{
		Routing: p.Stats, Sockets: devices.Stats, API: handler.Stats, Refusals: refusals.Counts,
		Turns: func() chat.Stats { return chat.Stats{} }, Hooks: []func() hooks.Stats{hookStats},
		MCPServers: func() []upstream.Status { return []upstream.Status{{Name: "files", Connected: true, Tools: 3}} },
		Tenants:    func() map[string]int64 { return connections },
		Pools:      []func() map[string]share.Stats{handler.Pools, devices.Pools, p.Pools, hookPools, hookPools},
	})
	for i := range 10_000 {
		connections[fmt.Sprint("tenant", i)] = int64(i)
	}
	p.http = httptest.NewServer(handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		p.must(devices.Close(ctx))
		p.http.Close()
		p.must(p.Close(ctx))
		p.must(bus.Close(ctx))
	})
	return p
}

func (p *testPod) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// scrape returns the metrics of Farhand's own, as Prometheus would read them.
func (p *testPod) scrape() map[string]family {
	p.Helper()
	resp, err := http.Get(p.http.URL + "/metrics")
	p.must(err)
	defer resp.Body.Close()
	families := parseFamilies(p, resp.Body)
	maps.DeleteFunc(families, func(name string, _ family) bool { return !strings.HasPrefix(name, "farhand_") })
	return families
}

// deaf is a device that nothing reaches.
type deaf struct{}

func (deaf) Deliver(routing.DeviceCall) error { return registry.NotConnected() }
func (deaf) Cancel(string, string)            {}
func (deaf) Ping(func())                      {}
func (deaf) Owner() share.Owner               { return share.Owner{} }
func (deaf) Pulse() registry.Pulse            { return registry.Pulse{} }
func (deaf) Close(routing.CloseCause)         {}

// flood has so many sessions with tools open, and sends what nobody expects, every name another one.
func (p *testPod) flood(seed uint64, n int) {
	p.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	name := func() string { return fmt.Sprintf("n%d_%d", seed, random.Uint64()) }
	for range n {
		s := registry.Session{Key: registry.Key{Tenant: registry.DefaultTenant, Session: name()}, DeviceID: name(),
			Name: name(), UserID: name()}
		local, _, err := p.Hub.Open(p.Context(), s, deaf{})
		p.must(err)
		spec, err := registry.ToolSpec{Name: name()}.Normalize()
		p.must(err)
		p.must(local.PutTools(p.Context(), []registry.ToolSpec{spec}, nil))
	}
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(p.http.URL,
		"http")+"/ws/chat?session_id="+name(), nil)
	p.must(err)
	defer conn.Close()
	for range n / 200 {
		p.must(conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":%q}`, name())))
		p.ask(http.MethodPost, "/api/tools/"+name()+"/call", `{"args":{}}`, nil)
		p.ask(http.MethodGet, "/"+name(), "", http.Header{"X-Request-Id": {name()}})
		p.ask(http.MethodPost, "/api/sessions/"+name(), "", nil)
		p.ask(strings.ToUpper(name()[:5]), "/api/tools?"+name()+"="+name(), "", nil)
		p.ask(http.MethodGet, "/ws/chat?session_id="+name(), "", nil)
		p.set.Turns.TurnFinished(chat.TurnInfo{Channel: name(), Model: name()},
			chat.TurnEnd{Outcome: chat.Outcome(name()), Calls: 1})
		p.set.Turns.TurnFinished(chat.TurnInfo{Channel: chat.ChannelChat, Model: name()},
			chat.TurnEnd{Outcome: chat.Outcome(name()), Usage: provider.Usage{Input: -1, Output: -1}})
		p.set.Calls.CallEnded(agent.CallEnd{Endpoint: agent.Endpoint(name()), Route: agent.CallRoute(name()),
			Outcome: name()})
		p.set.Redis.RoundTrip(redisstore.Kind(name()), time.Second, redisstore.FailureTimeout)
	}
	for range n {
		p.set.Calls.CallEnded(agent.CallEnd{Endpoint: agent.EndpointAPI, Route: agent.RouteLocal, Tenant: name(),
			Tool: name(), Outcome: agent.OutcomeSucceeded})
		p.set.Turns.TurnFinished(chat.TurnInfo{Channel: chat.ChannelChat, Key: registry.Key{Tenant: name()}},
			chat.TurnEnd{Outcome: chat.OutcomeDone, Usage: provider.Usage{Input: 1}, Failure: provider.Kind(name())})
	}
	for status := range 1000 {
		p.set.HTTP.Requested(name(), name(), status, registry.Code(name()), time.Second, "")
	}
}

func (p *testPod) ask(method, path, body string, header http.Header) {
	p.Helper()
	r, err := http.NewRequest(method, p.http.URL+path, bytes.NewReader([]byte(body)))
	p.must(err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(r)
	p.must(err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	p.must(err)
}

// TestSeriesAreBounded: whatever devices and callers send, the number of series stays below what is documented, and no
// label has a value that is not in its set.
func TestSeriesAreBounded(t *testing.T) {
	p := newTestPod(t)
	p.flood(1, 10_000)
	p.scrape() // a scrape is a request, too
	first := p.scrape()
	described := make(map[string]metrics.Metric)
	bound := 0
	for _, m := range p.set.Metrics() {
		described[m.Name] = m
		bound += m.Bound()
	}
	if n := allSeries(first); n > bound || n < 100 {
		t.Errorf("%d series, at most %d are documented", n, bound)
	}
	for name, f := range first {
		m, ok := described[name]
		if !ok {
			t.Errorf("%s is not described", name)
			continue
		}
		if n := len(f); n > m.Bound() {
			t.Errorf("%s has %d series, at most %d are documented", name, n, m.Bound())
		}
		for _, s := range f {
			for label, value := range s.labels {
				i := slices.IndexFunc(m.Labels, func(d metrics.Label) bool { return d.Name == label })
				if label != "le" && (i < 0 || m.Labels[i].More == 0 && !slices.Contains(m.Labels[i].Values, value)) {
					t.Errorf("%s has %s=%q, which is not described", name, label, value)
				}
			}
		}
	}
	if got := value(first, "farhand_sessions"); got < 10_000 {
		t.Errorf("%v sessions", got)
	}
	if got := value(first, "farhand_frames_received_total", "type", "other"); got == 0 {
		t.Error("unknown frames are not counted")
	}
	p.flood(2, 400)
	if before, after := allSeries(first), allSeries(p.scrape()); after > before {
		t.Errorf("%d series, %d after other names", before, after)
	}
}

// hookPools are those of one of two hooks, which are counted together.
func hookPools() map[string]share.Stats {
	return map[string]share.Stats{
		"hook_questions": {Held: 2, Waiting: 1, Refused: map[share.Bound]int64{share.Tenant: 3}},
	}
}

// TestPoolsAreExported: what is held of a pool, what waits, and what was refused by whose bound.
func TestPoolsAreExported(t *testing.T) {
	p := newTestPod(t)
	defer p.connectEcho().Close()
	got := p.scrape()
	for i, pair := range [][2]float64{
		{value(got, "farhand_pool_held", "pool", "sockets"), 1},
		{value(got, "farhand_pool_held", "pool", "hook_questions"), 4},
		{value(got, "farhand_pool_waiting", "pool", "hook_questions"), 2},
		{value(got, "farhand_pool_refused_total", "pool", "hook_questions", "bound", "tenant"), 6},
		{value(got, "farhand_pool_refused_total", "pool", "sockets", "bound", "identity"), 0},
	} {
		if pair[0] != pair[1] {
			t.Errorf("value %d is %v, want %v", i, pair[0], pair[1])
		}
	}
}

// TestNamesAndUnits: names follow the conventions of Prometheus, and help texts are sentences.
func TestNamesAndUnits(t *testing.T) {
	for _, m := range newTestPod(t).set.Metrics() {
		if !strings.HasPrefix(m.Name, "farhand_") || m.Name != strings.ToLower(m.Name) {
			t.Errorf("%s", m.Name)
		}
		if strings.HasSuffix(m.Name, "_total") != (m.Kind == metrics.Counter) {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
		if m.Kind == metrics.Histogram && !strings.HasSuffix(m.Name, "_seconds") {
			t.Errorf("%s has no unit", m.Name)
		}
		if !strings.HasSuffix(m.Help, ".") || m.Help[:1] != strings.ToUpper(m.Help[:1]) {
			t.Errorf("%s: %q is no sentence", m.Name, m.Help)
		}
	}
}

// TestCallsAreCounted from end to end: a device's answer, a failure, and what is on its way.
func TestCallsAreCounted(t *testing.T) {
	p := newTestPod(t)
	defer p.connectEcho().Close()
	for range 3 {
		p.ask(http.MethodPost, "/api/tools/echo/call", "{}", nil)
	}
	p.ask(http.MethodPost, "/api/tools/none/call", "{}", nil)
	got := p.scrape()
	for want, have := range map[float64][]float64{
		1: {
			value(got, "farhand_sessions"), value(got, "farhand_sockets"), value(got, "farhand_sockets_opened_total"),
			value(got, "farhand_calls_total", "endpoint", "api", "route", "none", "outcome", "tool_not_found"),
			value(got, "farhand_http_errors_total", "code", "tool_not_found"),
			value(got, "farhand_http_requests_total", "route", "POST /api/tools/:name/call", "status", "404"),
			value(got, "farhand_build_info", "version", "v1"),
		},
		3: {
			value(got, "farhand_calls_total", "endpoint", "api", "route", "local", "outcome", "succeeded"),
			value(got, "farhand_call_duration_seconds", "endpoint", "api", "route", "local"),
			value(got, "farhand_frames_received_total", "type", "tool_result"),
			value(got, "farhand_frames_sent_total", "type", "tool_call_request"),
			value(got, "farhand_http_requests_total", "route", "POST /api/tools/:name/call", "status", "200"),
		},
	} {
		for i, v := range have {
			if v != want {
				t.Errorf("value %d is %v, want %v", i, v, want)
			}
		}
	}
}

// TestWaitsAndPlacesAreCounted: calls that wait for a device that is expected back, and what tools keep on this pod.
func TestWaitsAndPlacesAreCounted(t *testing.T) {
	p := newTestPod(t)
	want := func(what string, n float64, name string, labels ...string) { // a scrape may be of a moment ago
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%s: %s %v is %v", what, name, labels, n), func() bool {
			return value(p.scrape(), name, labels...) == n
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	defer cancel()
	tool := func(s registry.Session) *routing.LocalSession {
		l, _, err := p.Hub.Open(ctx, s, deaf{})
		p.must(err)
		spec, err := registry.ToolSpec{Name: "camera"}.Normalize()
		p.must(err)
		p.must(l.PutTools(ctx, []registry.ToolSpec{spec}, nil))
		return l
	}
	resolve := func(ctx context.Context) error {
		_, err := p.Router.Resolve(ctx, registry.DefaultTenant, "camera", registry.Target{}, registry.SelectNone)
		return err
	}
	s := registry.Session{Key: registry.Key{Tenant: registry.DefaultTenant, Session: "s1"}}
	tool(s).Leave(ctx, registry.ReturnWait)
	hangsUp, hangUp := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- resolve(ctx) }()
	go func() { ended <- resolve(hangsUp) }()
	testkit.Eventually(t, "two calls wait", func() bool {
		return value(p.scrape(), "farhand_calls_in_progress", "place", "returning") == 2
	})
	hangUp()
	if err := testkit.Receive(t, "the caller that hung up", ended); err == nil {
		t.Error("it found a device")
	}
	tool(s)
	p.must(testkit.Receive(t, "the other caller", ended))
	want("nobody waits", 0, "farhand_calls_in_progress", "place", "returning")
	want("it came", 1, "farhand_call_returns_total", "came", "true")
	want("it did not", 1, "farhand_call_returns_total", "came", "false")

	p.Places.Serve(registry.PlaceKeeper{
		Run: func(context.Context, registry.Errand, func(registry.Report)) (registry.Result, error) {
			return registry.Result{Success: true}, nil
		},
	})
	for range 2 {
		_, err := p.Places.Run(ctx, registry.Errand{
			Place: registry.Place{Key: registry.PlaceKey{Tenant: "t", Session: "s"}}, Kind: "browser", Tool: "browser",
			CallID: "c", Timeout: testkit.Limit,
		}, func(registry.Report) {})
		p.must(err)
	}
	want("one conversation", 1, "farhand_places")
	want("calls", 2, "farhand_place_calls_total", "pod", "this")
	want("calls", 0, "farhand_place_calls_total", "pod", "other")
}
