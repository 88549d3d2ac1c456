package farhand

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/metrics"
	"github.com/farhand/farhand/internal/testkit"
)

// openGateway returns a gateway that is closed when the test ends.
func openGateway(t *testing.T, change func(*Config)) *Gateway {
	t.Helper()
	cfg := DefaultConfig()
	change(&cfg)
	g, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

func get(t *testing.T, url string, header http.Header) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestDisksAndStoppingHaveMetrics: the disks of the folders that a pod writes to, and how much of its time to stop is
// used.
func TestDisksAndStoppingHaveMetrics(t *testing.T) {
	g := openGateway(t, func(c *Config) {
		c.DataDir, c.WorkspaceDir, c.Builtins = t.TempDir(), t.TempDir(), []string{"read"}
		c.BlobURL, c.DrainTimeout = Secret("file://"+t.TempDir()), time.Minute
	})
	found := make(map[string]bool)
	for _, d := range g.disks()() {
		if found[d.Folder] = true; d.Free <= 0 || d.Size < d.Free {
			t.Errorf("%+v", d)
		}
	}
	if !found[metrics.FolderData] || !found[metrics.FolderBlobs] || !found[metrics.FolderWorkspaces] {
		t.Errorf("disks of %v", found)
	}
	if used := g.drained(); used != 0 {
		t.Errorf("%v is used before it stops", used)
	}
	for since, want := range map[time.Duration]float64{15 * time.Second: 0.25, time.Hour: 1} {
		g.drainBegan.Store(time.Now().Add(-since).UnixNano())
		if used := g.drained(); used < want || used > want+0.5 {
			t.Errorf("%v is used after %v", used, since)
		}
	}
}

// TestEachPoolHasItsMetrics: every pool of a pod that has all it may have is one of those that are described.
func TestEachPoolHasItsMetrics(t *testing.T) {
	g := openGateway(t, func(c *Config) {
		c.MetricsAddr, c.Models = "127.0.0.1:0", []string{"m"}
		c.ModelURL, c.Builtins = "http://127.0.0.1:1/v1", []string{"browser"}
		c.WorkspaceDir, c.Sandbox = t.TempDir(), SandboxNone
	})
	named := make(map[string]bool)
	for _, m := range g.monitor.set.Metrics() {
		if m.Name == "farhand_pool_held" {
			for _, name := range m.Labels[0].Values {
				named[name] = true
			}
		}
	}
	_, body := get(t, "http://"+g.monitor.listener.Addr().String()+"/metrics", nil)
	found := regexp.MustCompile(`(?m)^farhand_pool_held\{pool="(\w+)"\} \d+$`).FindAllStringSubmatch(body, -1)
	for _, f := range found {
		if !named[f[1]] {
			t.Errorf("the pool %s is not described", f[1])
		}
	}
	if without := 6; len(found) != len(named)-without { // those of hooks, MCP servers and commands
		t.Errorf("%d pools of %d", len(found), len(named))
	}
}

// TestMetricsHaveAnAddressOfTheirOwn: then they are served nowhere else, profiles only if they are switched on, and
// nothing of it to web pages.
func TestMetricsHaveAnAddressOfTheirOwn(t *testing.T) {
	for _, profiles := range []bool{false, true} {
		g := openGateway(t, func(c *Config) { c.MetricsAddr, c.Pprof = "127.0.0.1:0", profiles })
		url := "http://" + g.monitor.listener.Addr().String()
		if status, body := get(t, url+"/metrics", nil); status != 200 ||
			!strings.Contains(body, "farhand_sessions 0") ||
			!strings.Contains(body, "go_goroutines") || !strings.Contains(body, "farhand_build_info") {
			t.Errorf("%d %s", status, body)
		}
		if status, _ := get(t, url+"/debug/pprof/cmdline", nil); (status == 200) != profiles {
			t.Errorf("profiles %v: %d", profiles, status)
		}
		if status, body := get(t, url+"/metrics", http.Header{"Origin": {"https://evil.example"}}); status != 403 {
			t.Errorf("a web page: %d %s", status, body)
		}
		if status, body := get(t, url+"/api/tools", nil); status != 404 {
			t.Errorf("the API: %d %s", status, body)
		}
		w := &recorded{header: http.Header{}}
		r, err := http.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if g.Handler().ServeHTTP(w, r); w.status != 404 {
			t.Errorf("beside the API: %d", w.status)
		}
	}
}

// recorded is an answer of which only the status matters.
type recorded struct {
	header http.Header
	status int
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorded) WriteHeader(status int)      { r.status = status }

// TestMetricsBesideTheAPI are served if they have no address of their own; without a token whoever is on this machine
// is admin.
func TestMetricsBesideTheAPI(t *testing.T) {
	for token, want := range map[string]int{"": 200, "a-token-that-nobody-has": 401} {
		g := openGateway(t, func(c *Config) { c.Token = Secret(token) })
		w := &recorded{header: http.Header{}, status: 200}
		r, err := http.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if g.Handler().ServeHTTP(w, r); w.status != want {
			t.Errorf("with the token %q: %d", token, w.status)
		}
	}
}

func TestPprofNeedsItsAddress(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Pprof = true
	if g, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "FARHAND_PPROF") {
		t.Errorf("%v, %v", g, err)
	}
}

// TestDocumentedMetricsExist: what docs/operate.md asks for is there. That all there are stand in its table is
// TestDocsAreGenerated's business.
func TestDocumentedMetricsExist(t *testing.T) {
	s := metrics.New(nil, "v1")
	s.Watch(metrics.Pod{MCPServers: func() []upstream.Status { return nil }})
	exists := make(map[string]bool)
	for _, m := range s.Metrics() {
		exists[m.Name] = true
		if m.Kind == metrics.Histogram {
			exists[m.Name+"_bucket"], exists[m.Name+"_sum"], exists[m.Name+"_count"] = true, true, true
		}
	}
	text, err := os.ReadFile("docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bfarhand_[a-z_]+[a-z]\b`).FindAllString(string(text), -1) {
		if !exists[name] {
			t.Errorf("docs/operate.md names %s, which does not exist", name)
		}
	}
}

// TestTheLogLevelChangesAtRunTime: at the metrics address only, without a restart, and not by web pages.
func TestTheLogLevelChangesAtRunTime(t *testing.T) {
	cfg, level, lines := DefaultConfig(), new(slog.LevelVar), new(strings.Builder)
	cfg.MetricsAddr, cfg.Pprof = "127.0.0.1:0", true
	log := slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: level}))
	handler, err := monitoringHandler(cfg, metrics.New(nil, "v1"), settings{level: level, log: log})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, body string, header http.Header) (int, string) {
		r := httptest.NewRequest(method, "http://localhost/loglevel", strings.NewReader(body))
		for name, values := range header {
			r.Header[name] = values
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, to := range []string{"debug", "error\n", "warn", "info"} {
		if status, body := send(http.MethodPut, to, nil); status != 200 || body != strings.TrimSpace(to) {
			t.Errorf("%s: %d %s", to, status, body)
		}
		if status, body := send(http.MethodGet, "", nil); status != 200 || body != strings.TrimSpace(to) {
			t.Errorf("after %s: %d %s", to, status, body)
		}
	}
	for _, wrong := range []string{"", "loud", "warn+1", "DEBUG-4", strings.Repeat("debug", 1000)} {
		if status, _ := send(http.MethodPut, wrong, nil); status != 400 || level.Level() != slog.LevelInfo {
			t.Errorf("%.20q: %d, level %v", wrong, status, level.Level())
		}
	}
	if status, _ := send(http.MethodPut, "debug", http.Header{"Origin": {"https://evil.example"}}); status != 403 {
		t.Errorf("a web page: %d", status)
	}
	if n := strings.Count(lines.String(), "log level changed"); n != 4 {
		t.Errorf("%d lines of changes:\n%s", n, lines)
	}
}

// TestNoProfilesBesideTheAPI: neither profiles nor the level of the log are at the public address.
func TestNoProfilesBesideTheAPI(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MetricsAddr, cfg.Pprof = "127.0.0.1:0", true
	g, err := New(t.Context(), cfg, WithLogLevel(new(slog.LevelVar)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	for _, path := range []string{"/loglevel", "/debug/pprof/", "/debug/pprof/heap"} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, strings.NewReader("debug")))
			if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	url := "http://" + g.monitor.listener.Addr().String() + "/loglevel"
	if status, body := get(t, url, nil); status != 200 || body != "info\n" {
		t.Errorf("%d %q", status, body)
	}
}
