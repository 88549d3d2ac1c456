package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

const someCall = "123e4567-e89b-42d3-a456-426614174000"

// everyRoute has one request for each route below /api, and two that do not exist there.
var everyRoute = []request{
	{path: "/api/tools"}, {path: "/api/sessions"}, {path: "/api/sessions/s1"},
	{method: http.MethodDelete, path: "/api/sessions/s1"},
	{method: http.MethodPost, path: "/api/tools/t/call"},
	{method: http.MethodPost, path: "/api/sessions/s1/tools/t/call"},
	{path: "/api/calls"}, {path: "/api/events"}, {path: "/api/calls/" + someCall},
	{path: "/api/calls/" + someCall + "/events"},
	{method: http.MethodDelete, path: "/api/calls/" + someCall}, {path: messagesOfS1},
	{path: "/api/secret"}, {method: http.MethodPut, path: "/api/tools"}, {method: http.MethodHead, path: "/api/tools"},
}

func TestEveryRouteNeedsAToken(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	for _, r := range everyRoute {
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + token, token,
			"Bearer " + token + "x"} {
			r.header = http.Header{"Authorization": {authorization}}
			if authorization == "" {
				r.header = http.Header{"Authorization": nil}
			}
			got := f.send(r)
			if got.status != http.StatusUnauthorized || got.header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%s %s with %q: status %d", r.method, r.path, authorization, got.status)
			}
			if r.method != http.MethodHead {
				wantProblem(got, 401, registry.CodeUnauthenticated)
			}
			if isCall := r.method == http.MethodPost; isCall != (got.header.Get("X-Farhand-Call-Id") != "") {
				t.Errorf("%s %s: call id %q", r.method, r.path, got.header.Get("X-Farhand-Call-Id"))
			}
		}
	}
	if len(d.calls)+len(d.closed) != 0 {
		t.Error("something reached the device")
	}
	r := f.send(request{path: "/api/tools?token=" + token, header: http.Header{"Authorization": nil}})
	wantProblem(r, 401, registry.CodeUnauthenticated)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if r := f.send(request{path: path, header: http.Header{"Authorization": nil}}); r.status != 200 {
			t.Errorf("%s: status %d", path, r.status)
		}
	}
	if log := f.pods[0].log.String(); strings.Contains(log, token) {
		t.Error("the token is in the log")
	}
}

func TestForeignOrigins(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	for _, r := range append([]request{{path: "/openapi.json"}, {path: "/ws/chat"}, {path: "/nothing"}},
		everyRoute...) {
		r.header = http.Header{"Origin": {"https://evil.example"}}
		if got := f.send(r); r.method != http.MethodHead {
			wantProblem(got, 403, registry.CodeForbidden)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := f.send(request{path: path, header: http.Header{"Origin": {"https://evil.example"}}}); r.status != 200 {
			t.Errorf("%s: status %d", path, r.status)
		}
	}
	for _, origin := range []string{"https://console.example.com", f.pods[0].server.URL} {
		if r := f.send(request{path: "/api/tools", header: http.Header{"Origin": {origin}}}); r.status != 200 {
			t.Errorf("%s: status %d", origin, r.status)
		}
	}
}

func TestDNSRebinding(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) {
		origins, err := auth.NewOrigins(nil, true)
		if err != nil {
			t.Fatal(err)
		}
		c.Origins, c.Auth = origins, auth.Anonymous{}
	}})
	for host, status := range map[string]int{"evil.example:8080": 403, "localhost:8080": 200, "127.0.0.1": 200,
		"[::1]:80": 200} {
		if r := f.send(request{path: "/api/tools", header: http.Header{"Host": {host},
			"Authorization": nil}}); r.status != status {
			t.Errorf("Host %s: status %d, want %d", host, r.status, status)
		}
	}
	if r := f.send(request{path: "/healthz", header: http.Header{"Host": {"10.0.0.7:8080"}}}); r.status != 200 {
		t.Errorf("a probe by address: status %d", r.status)
	}
}

// TestTheIndex: a browser is led to the console, if there is one, and a program learns where to read more.
func TestTheIndex(t *testing.T) {
	const browser = "text/html,application/xml;q=0.9,*/*;q=0.8"
	for _, console := range []string{"", "/console/"} {
		f := newFleet(t, setup{change: func(cfg *api.Config) { cfg.Console = console }})
		for _, accept := range []string{"", browser} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.pods[0].server.URL+"/", nil)
			f.must(err)
			if accept != "" {
				req.Header.Set("Accept", accept)
			}
			resp, err := f.pods[0].server.Client().Transport.RoundTrip(req)
			f.must(err)
			body, err := io.ReadAll(resp.Body)
			f.must(err)
			f.must(resp.Body.Close())
			r := reply{T: t, status: resp.StatusCode, header: resp.Header, body: body}
			checkContract(t, req, r)
			if r.header.Get("Vary") != "Accept" || !strings.Contains(r.header.Get("Cache-Control"), "max-age") {
				t.Errorf("%q: %v", accept, r.header)
			}
			if accept == browser && console != "" {
				if r.want(302); r.header.Get("Location") != console {
					t.Errorf("to %q", r.header.Get("Location"))
				}
				continue
			}
			if i := decode[wire.Index](r, 200); i.Version != "1.2.3" || i.Console != console ||
				i.OpenAPI != "/openapi.json" {
				t.Errorf("%+v", i)
			}
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	f := newFleet(t, setup{})
	for _, path := range []string{"/console/", "/api", "/api/", "/api/tools/", "/api/nothing",
		"/API/tools", "//api/tools",
		"/api/tools/x", "/api/sessions/a%2Fb", "/index.html"} {
		wantProblem(f.get(path), 404, registry.CodeNotFound)
	}
	for path, r := range map[string]struct{ method, allow string }{
		"/api/tools":                    {http.MethodPost, "GET, HEAD"},
		"/api/sessions":                 {http.MethodDelete, "GET, HEAD"},
		"/api/sessions/s1":              {http.MethodPatch, "GET, HEAD, PUT, DELETE"},
		"/api/tools/t/call":             {http.MethodGet, "POST"},
		"/api/sessions/s1/tools/t/call": {http.MethodOptions, "POST"},
		"/healthz":                      {http.MethodPost, "GET, HEAD"},
		messagesOfS1:                    {http.MethodDelete, "GET, HEAD, POST"},
		"/ws/chat":                      {http.MethodPost, "GET"},
	} {
		got := f.send(request{method: r.method, path: path})
		wantProblem(got, 405, registry.CodeMethodNotAllowed)
		if allow := got.header.Get("Allow"); !sameWords(allow, r.allow) {
			t.Errorf("%s: Allow %q, want %q", path, allow, r.allow)
		}
	}
}

func sameWords(a, b string) bool {
	count := func(s string) map[string]int {
		words := make(map[string]int)
		for w := range strings.SplitSeq(s, ", ") {
			words[w]++
		}
		return words
	}
	x, y := count(a), count(b)
	for w := range y {
		if x[w] != y[w] {
			return false
		}
	}
	return len(x) == len(y)
}

func TestHealthAndReadiness(t *testing.T) {
	broken := errors.New("redis://user:hunter2@10.0.0.1 is away")
	var ready error
	f := newFleet(t, setup{change: func(c *api.Config) { c.Ready = func(context.Context) error { return ready } }})
	health := decode[map[string]string](f.get("/healthz"), 200)
	if health["status"] != "ok" || health["pod"] != "pod-0" || health["version"] != "1.2.3" {
		t.Errorf("health %v", health)
	}
	if got := decode[map[string]string](f.get("/readyz"), 200); got["status"] != "ready" {
		t.Errorf("ready %v", got)
	}
	ready = broken
	r := f.get("/readyz")
	wantProblem(r, 503, registry.CodeStoreUnavailable)
	if r.header.Get("Retry-After") == "" || strings.Contains(string(r.body), "hunter2") {
		t.Errorf("headers %v, body %s", r.header, r.body)
	}
	if f.get("/healthz").status != 200 {
		t.Error("not ready is not dead")
	}
}

// What kept a pod from being ready may be told if it was written to be told; its cause never is.
func TestReadinessTellsWhy(t *testing.T) {
	var ready error
	f := newFleet(t, setup{change: func(c *api.Config) { c.Ready = func(context.Context) error { return ready } }})
	deaf := registry.StoreUnavailable("receive", errors.New("10.0.0.1 is silent"))
	deaf.Message = "Messages from other pods do not arrive at this one."
	ready = deaf
	r := f.get("/readyz")
	if p := wantProblem(r, 503, registry.CodeStoreUnavailable); p.Detail != deaf.Message ||
		strings.Contains(string(r.body), "10.0.0.1") {
		t.Errorf("body %s", r.body)
	}
	ready = registry.Errorf(registry.CodeInternal, "whatever") // a probe must see 503 all the same
	wantProblem(f.get("/readyz"), 503, registry.CodeStoreUnavailable)
	if log := f.pods[0].log.String(); !strings.Contains(log, "10.0.0.1 is silent") {
		t.Error("the cause is not in the log")
	}
}

// brokenDirectory fails as a store that is away does.
type brokenDirectory struct{ registry.Directory }

var errAway = registry.StoreUnavailable("list", errors.New("dial tcp 10.0.0.1:6379: refused"))

func (brokenDirectory) Entry(context.Context, registry.Key) (registry.Entry, error) {
	return registry.Entry{}, errAway
}

func (brokenDirectory) List(context.Context, registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	return nil, nil, errAway
}

func (brokenDirectory) OfferedTools(
	context.Context, registry.OfferedToolQuery,
) ([]registry.OfferedTool, string, error) {
	return nil, "", errors.New("not even a coded error, about 10.0.0.1")
}

func (brokenDirectory) Version(context.Context, string) (string, error) { return "", nil }

// versionlessDirectory cannot even say whether something has changed.
type versionlessDirectory struct{ registry.Directory }

func (versionlessDirectory) Version(context.Context, string) (string, error) { return "", errAway }

func TestStoreWithoutVersion(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Directory = versionlessDirectory{} }})
	for _, path := range []string{"/api/tools", "/api/sessions", "/api/sessions/s1", "/api/tools?view=grouped"} {
		wantProblem(f.get(path), 503, registry.CodeStoreUnavailable)
	}
}

func TestStoreAway(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Directory = brokenDirectory{} }})
	for _, path := range []string{"/api/tools", "/api/sessions", "/api/sessions/s1",
		"/api/tools?format=mcp&user_id=a", "/api/tools?view=grouped&user_id=a"} {
		r := f.get(path)
		wantProblem(r, 503, registry.CodeStoreUnavailable)
		if r.header.Get("Retry-After") != "1" || strings.Contains(string(r.body), "10.0.0.1") {
			t.Errorf("%s: headers %v, body %s", path, r.header, r.body)
		}
	}
	wantProblem(f.send(request{method: http.MethodDelete, path: "/api/sessions/s1"}), 503,
		registry.CodeStoreUnavailable)
	for _, path := range []string{"/api/tools?view=grouped", "/api/tools?format=openai"} {
		if r := f.get(path); strings.Contains(string(r.body), "10.0.0.1") {
			t.Errorf("%s: body %s", path, r.body)
		} else {
			wantProblem(r, 500, registry.CodeInternal)
		}
	}
	if log := f.pods[0].log.String(); !strings.Contains(log, "refused") ||
		!strings.Contains(log, "not even a coded error") {
		t.Error("the causes are not in the log")
	}
}

func TestDeviceHandler(t *testing.T) {
	f := newFleet(t, setup{})
	if r := f.get("/ws/chat?session_id=s1"); r.status != http.StatusUnauthorized { // what the test's handler answers
		t.Errorf("status %d", r.status)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := api.NewHandler(api.Config{}); err == nil {
		t.Error("an empty configuration was taken")
	}
}
