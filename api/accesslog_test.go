package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// logOf returns what a pod has logged once all its requests have ended.
func (f *fleet) logOf(i int) string {
	f.pods[i].server.Close() // waits for the handlers, which log last
	return f.pods[i].log.String()
}

func accessLog(mode api.AccessLog) setup {
	return setup{change: func(c *api.Config) { c.AccessLog = mode }}
}

// One line for each request, none for probes and sockets that are served, and nothing secret in it.
func TestAccessLog(t *testing.T) {
	f := newFleet(t, accessLog(api.AccessLogAll))
	f.connect(0, session("s1"), echo, tools("t")...)
	a := decode[answer](f.post("/api/tools/t/call", `{"args":{"password":"opensesame"}}`), 200)
	f.get("/api/sessions?user_id=somebody")
	f.get("/healthz")
	f.get("/readyz")
	f.get("/ws/chat?token=" + token)
	f.get("/nothing?x=1")
	log := f.logOf(0)
	for _, want := range []string{
		"level=INFO msg=request method=POST route=/api/tools/:name/call status=200 ms=",
		" request_id=" + a.CallID + " call_id=" + a.CallID + " tenant=default admin=true\n",
		"level=INFO msg=request method=GET route=/api/sessions status=200",
		`level=INFO msg="request failed" method=GET route="" status=404`, " code=not_found\n",
		`level=INFO msg="request failed" method=GET route=/ws/chat status=401`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	for _, never := range []string{token, "opensesame", "somebody", "/healthz", "/readyz", "x=1"} {
		if strings.Contains(log, never) {
			t.Errorf("the log has %q:\n%s", never, log)
		}
	}
	if n := strings.Count(log, "msg=request "); n != 2 {
		t.Errorf("%d lines for 2 requests:\n%s", n, log)
	}
}

// TestAccessLogIsSampled: of many requests that succeed few have a line, and every failure has one.
func TestAccessLogIsSampled(t *testing.T) {
	f := newFleet(t, setup{})
	const asked = 400
	for range asked {
		f.get("/api/sessions")
	}
	for range 3 {
		f.get("/api/sessions/nobody")
	}
	log := f.logOf(0)
	if n := strings.Count(log, "msg=request "); n < 10 || n > asked/2 {
		t.Errorf("%d lines for %d requests", n, asked)
	}
	if n := strings.Count(log, "request failed"); n != 3 {
		t.Errorf("%d lines for 3 failures:\n%s", n, log)
	}
}

func TestAccessLogIsOff(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.AccessLog, c.Directory = api.AccessLogOff, brokenDirectory{}
	}})
	f.get("/openapi.json")
	f.get("/nothing")
	f.get("/api/sessions") // its cause is told to nobody but the log
	if log := f.logOf(0); strings.Contains(log, "msg=request ") || strings.Count(log, "request failed") != 1 ||
		!strings.Contains(log, "level=WARN msg=\"request failed\" method=GET route=/api/sessions status=503") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestAFloodOfFailuresIsToldBriefly: a pod without its store refuses every request, and does not write a line for each.
// One of another kind still has its line.
func TestAFloodOfFailuresIsToldBriefly(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Directory = brokenDirectory{} }})
	const asked = 300
	for range asked {
		f.get("/api/sessions")
	}
	f.get("/nothing")
	log := f.logOf(0)
	if n := strings.Count(log, "code=store_unavailable"); n < 10 || n > 40 {
		t.Errorf("%d lines for %d failures of one kind", n, asked)
	}
	if !strings.Contains(log, "code=not_found") {
		t.Error("another kind of failure has no line")
	}
}

// TestAClientThatHangsUpIsNoFailureOfTheStore: what the store was asked for it ends with its request, and that is
// neither logged as a fault of the gateway nor told as one.
func TestAClientThatHangsUpIsNoFailureOfTheStore(t *testing.T) {
	for _, tt := range []struct {
		why        error
		status     int
		code, line string
	}{
		{context.Canceled, http.StatusConflict, "cancelled", "level=INFO"},
		{registry.ErrDraining, http.StatusServiceUnavailable, "draining", "level=WARN"},
	} {
		f := newFleet(t, setup{change: func(c *api.Config) { c.Directory = endingDirectory{Directory: c.Directory} }})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.why)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/sessions", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		f.pods[0].server.Config.Handler.ServeHTTP(w, r)
		log := f.logOf(0)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), `"code":"`+tt.code+`"`) ||
			!strings.Contains(log, tt.line+` msg="request failed"`) || strings.Contains(log, "store_unavailable") {
			t.Errorf("%v: %d %s\n%s", tt.why, w.Code, w.Body, log)
		}
	}
}

// TestAnMCPClientThatHangsUpIsNoFailureOfTheStore: neither is it logged as one at /mcp.
func TestAnMCPClientThatHangsUpIsNoFailureOfTheStore(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Directory = endingDirectory{Directory: c.Directory} }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	f.pods[0].server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
	if log := f.logOf(0); !strings.Contains(log, `level=INFO msg="request failed"`) ||
		!strings.Contains(log, "code=cancelled") {
		t.Errorf("logged %s", log)
	}
}

// endingDirectory fails as a store does whose request has ended.
type endingDirectory struct{ registry.Directory }

func (endingDirectory) List(ctx context.Context, _ registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	<-ctx.Done()
	return nil, nil, registry.StoreUnavailable("list", ctx.Err())
}

func (endingDirectory) Version(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", registry.StoreUnavailable("version", ctx.Err())
}

// TestRequestID: a plain name is echoed, any other is replaced, and every answer has one.
func TestRequestID(t *testing.T) {
	f := newFleet(t, accessLog(api.AccessLogAll))
	ask := func(given, path string) string {
		t.Helper()
		header := http.Header{}
		if given != "" {
			header["X-Request-Id"] = []string{given}
		}
		r := f.send(request{method: http.MethodGet, path: path, header: header})
		got := r.header.Values("X-Request-Id")
		if len(got) != 1 || got[0] == "" {
			t.Fatalf("%s with %q: %q", path, given, got)
		}
		return got[0]
	}
	long := strings.Repeat("a", 128)
	for _, given := range []string{"req-1", "Root=1-67891233-abcdef012345678912345678", "a/b+c=", long} {
		for _, path := range []string{"/api/sessions", "/nothing", "/ws/chat", "/healthz"} {
			if got := ask(given, path); got != given {
				t.Errorf("%s: %q became %q", path, given, got)
			}
		}
	}
	seen := make(map[string]bool)
	for _, given := range []string{"", long + "a", "two words", "a;b", "<b>", "a\"b", "é", "a\tb"} {
		got := ask(given, "/api/sessions")
		if got == given || seen[got] || len(got) != 32 {
			t.Errorf("%q became %q", given, got)
		}
		seen[got] = true
	}
	if log := f.logOf(0); !strings.Contains(log, "request_id=req-1") {
		t.Errorf("the log does not name the request:\n%s", log)
	}
}

// adminToken and userToken are good for an admin and for somebody else.
type adminAndUser struct{}

func (adminAndUser) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	if token == "" {
		return auth.Identity{}, registry.Errorf(registry.CodeUnauthenticated, "A token is required.")
	}
	return auth.Identity{
		Tenant: registry.DefaultTenant, User: token, Admin: token == "admin", Roles: auth.RoleCaller,
	}, nil
}

func TestMetricsAreForAdmins(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth = adminAndUser{}
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "farhand_up 1\n")
		})
	}})
	for token, want := range map[string]int{"": 401, "somebody": 403, "admin": 200} {
		r, err := http.NewRequest(http.MethodGet, f.pods[0].server.URL+"/metrics", nil)
		f.must(err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(r)
		f.must(err)
		body, err := io.ReadAll(resp.Body)
		f.must(err)
		f.must(resp.Body.Close())
		if resp.StatusCode != want || strings.Contains(string(body), "farhand_up") != (want == 200) {
			t.Errorf("%q: %d %s", token, resp.StatusCode, body)
		}
	}
}

// TestMetricsAreNotMounted unless there are any.
func TestMetricsAreNotMounted(t *testing.T) {
	f := newFleet(t, setup{})
	wantProblem(f.get("/metrics"), 404, registry.CodeNotFound)
}
