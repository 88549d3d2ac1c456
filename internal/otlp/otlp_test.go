package otlp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/otlp"
	"github.com/farhand/farhand/internal/otlp/otlptest"
	"github.com/farhand/farhand/internal/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config returns the configuration of some variables.
func config(t testing.TB, environ ...string) otlp.Config {
	t.Helper()
	c, err := otlp.LoadConfig(environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send records n spans below one and closes the provider.
func send(t testing.TB, c otlp.Config, n int) trace.Stats {
	t.Helper()
	p := otlp.Open(c, "v1.2.3", slog.New(slog.DiscardHandler))
	ctx, root := trace.New(p).Serve(context.Background(), trace.Server, "root", "", "", nil)
	for range n {
		_, span := trace.Start(ctx, trace.Client, "child", "of root")
		span.Text(trace.Tool, "echo").Number(trace.HTTPStatus, 200).Texts(trace.Finish, "stop").End("busy")
	}
	root.End("")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p.Close(ctx)
	return p.Stats()
}

// TestSpansArrive over each protocol, with its options.
func TestSpansArrive(t *testing.T) {
	for protocol, path := range map[string]string{
		"http/protobuf": "/v1/traces", "grpc": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
	} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(protocol+" "+compression, func(t *testing.T) {
				collector := otlptest.New(t)
				stats := send(t, config(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
					"OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_EXPORTER_OTLP_COMPRESSION="+compression,
					"OTEL_EXPORTER_OTLP_HEADERS=x-key=a%2Cb", "OTEL_SERVICE_NAME=home",
					"OTEL_RESOURCE_ATTRIBUTES=service.name=other,deployment.environment.name=test"), 1)
				spans := collector.Spans()
				if len(spans) != 2 || stats != (trace.Stats{Exported: 2}) {
					t.Fatalf("%+v, counted %+v", spans, stats)
				}
				child, root := spans[0], spans[1]
				if child.Trace != root.Trace || child.Parent != root.ID || root.Parent != "" || len(root.ID) != 16 ||
					child.Name != "child of root" || child.Kind != 3 || root.Kind != 2 || !child.Failed || root.Failed {
					t.Errorf("child %+v\nroot %+v", child, root)
				}
				for key, want := range map[trace.Key]string{
					trace.Tool: "echo", trace.HTTPStatus: "200", trace.Finish: "stop", trace.ErrorType: "busy",
				} {
					if got := child.Attributes[string(key)]; got != want {
						t.Errorf("%s is %q, want %q", key, got, want)
					}
				}
				r := root.Resource
				if r["service.name"] != "home" || r["service.version"] != "v1.2.3" || r["service.instance.id"] == "" ||
					r["deployment.environment.name"] != "test" {
					t.Errorf("resource %v", r)
				}
				if got := collector.Requests()[0]; got.Path != path || got.Header.Get("X-Key") != "a,b" {
					t.Errorf("request %+v", got)
				}
			})
		}
	}
}

// TestRetries: what OTLP says can be sent again is sent again, everything else is counted as lost.
func TestRetries(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	// partial_success {rejected_spans: 1, error_message: "x"}
	partial := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "\x0a\x05\x08\x01\x12\x01x")
	}
	for name, c := range map[string]struct {
		protocol string
		answer   http.HandlerFunc
		requests int
		want     trace.Stats
	}{
		"503":          {"http/protobuf", status(503), 2, trace.Stats{Exported: 2}},
		"429":          {"http/protobuf", status(429), 2, trace.Stats{Exported: 2}},
		"400":          {"http/protobuf", status(400), 1, trace.Stats{Failed: 2}},
		"redirect":     {"http/protobuf", status(302), 1, trace.Stats{Failed: 2}},
		"partial":      {"http/protobuf", partial, 1, trace.Stats{Exported: 1, Rejected: 1}},
		"unavailable":  {"grpc", otlptest.GRPC("14", "later"), 2, trace.Stats{Exported: 2}},
		"invalid":      {"grpc", otlptest.GRPC("3", "no"), 1, trace.Stats{Failed: 2}},
		"exhausted":    {"grpc", otlptest.GRPC("8", "full"), 1, trace.Stats{Failed: 2}},
		"not gRPC 404": {"grpc", status(404), 1, trace.Stats{Failed: 2}},
		"not gRPC 502": {"grpc", status(502), 2, trace.Stats{Exported: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.New(t, c.answer)
			stats := send(t, config(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
				"OTEL_EXPORTER_OTLP_PROTOCOL="+c.protocol), 1)
			if n := len(collector.Requests()); n != c.requests || stats != c.want {
				t.Errorf("%d requests, %+v; want %d, %+v", n, stats, c.requests, c.want)
			}
		})
	}
}

// TestNoCollector: spans end without waiting, and each that is lost is counted.
func TestNoCollector(t *testing.T) {
	release := make(chan struct{})
	collector := otlptest.New(t, func(http.ResponseWriter, *http.Request) { <-release })
	c := config(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+collector.URL, "OTEL_BSP_MAX_QUEUE_SIZE=10",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=5", "OTEL_EXPORTER_OTLP_TIMEOUT=60000", "OTEL_BSP_EXPORT_TIMEOUT=60000")
	p := otlp.Open(c, "v1", slog.New(slog.DiscardHandler))
	tracer := trace.New(p)
	const n = 1000
	for range n { // the collector does not answer before all have ended
		_, span := tracer.Serve(context.Background(), trace.Server, "request", "", "", nil)
		span.End("")
	}
	if lost := p.Stats().Overflow; lost < n-20 || lost > n-10 { // a queue of 10, and up to two batches out of it
		t.Errorf("%d of %d spans dropped", lost, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the pod does not wait for the collector either
	p.Close(ctx)
	close(release)
	if s := p.Stats(); s.Overflow+s.Failed != n || s.Exported != 0 {
		t.Errorf("%+v of %d spans", s, n)
	}
}

// TestOffUnlessConfigured: nothing is exported unless a variable says where.
func TestOffUnlessConfigured(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for _, environ := range [][]string{
		nil, {"OTEL_SERVICE_NAME=x"}, {endpoint, "OTEL_SDK_DISABLED=true"}, {endpoint, "OTEL_TRACES_EXPORTER=none"},
	} {
		if config(t, environ...).On() {
			t.Errorf("%v turns traces on", environ)
		}
	}
	for _, environ := range [][]string{{endpoint}, {"OTEL_TRACES_EXPORTER=otlp"}} {
		if !config(t, environ...).On() {
			t.Errorf("%v does not turn traces on", environ)
		}
	}
}

// TestMistakesAreNamed: the error names the variable, and no secret.
func TestMistakesAreNamed(t *testing.T) {
	for _, wrong := range []string{
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_TRACES_SAMPLER=jaeger_remote", "OTEL_BSP_MAX_QUEUE_SIZE=0",
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_TRACES_EXPORTER=zipkin",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere", "OTEL_EXPORTER_OTLP_COMPRESSION=zstd",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY=/nowhere", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector:4317",
	} {
		_, err := otlp.LoadConfig([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", wrong})
		name, value, _ := strings.Cut(wrong, "=")
		shown := strings.TrimSuffix(name, "_KEY") // a pair of files has one error
		if err == nil || !strings.Contains(err.Error(), shown) || value == "secret" &&
			strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := otlp.LoadConfig([]string{"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=2",
		"OTEL_TRACES_EXPORTER=otlp"}); err == nil {
		t.Error("a ratio of 2 is accepted")
	}
	if _, err := os.Stat("/nowhere"); err == nil {
		t.Error("the test needs a file that does not exist")
	}
}
