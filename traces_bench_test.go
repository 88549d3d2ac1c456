package farhand_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/otlp"
	"github.com/farhand/farhand/internal/otlp/otlptest"
	"github.com/farhand/farhand/internal/testkit"
)

// BenchmarkTraces is what traces add to a call over HTTP of a tool in the gateway, which is the cheapest call there is.
// It compares gateways in one run, in turns, by processor time: without traces (twice, to show the error of the
// measurement), with a sample of 1 % of them, and with all. The collector's own work is included.
func BenchmarkTraces(b *testing.B) {
	const round = 50 // calls
	collector := otlptest.New(b)
	exported := func(ratio string) []farhand.Option {
		c, err := otlp.LoadConfig([]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
			"OTEL_TRACES_SAMPLER_ARG=" + ratio,
		})
		if err != nil {
			b.Fatal(err)
		}
		p := otlp.Open(c, "v1", slog.New(slog.DiscardHandler))
		b.Cleanup(func() { p.Close(context.Background()) })
		return []farhand.Option{farhand.WithTracerProvider(p)}
	}
	kinds := []string{"off", "off-again", "1%", "all"}
	var call []func()
	for _, opts := range [][]farhand.Option{nil, nil, exported("0.01"), exported("1")} {
		g, err := farhand.New(b.Context(), farhand.Config{Token: adminToken, DataDir: farhand.NoData},
			append(opts, farhand.WithLogger(slog.New(slog.DiscardHandler)), farhand.WithToolFunc("hello", "Says hello.",
				func(context.Context, struct{}) (any, error) { return "hello", nil }))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = g.Close(context.Background()) })
		handler := g.Handler()
		call = append(call, func() {
			r := httptest.NewRequest(http.MethodPost, "/api/tools/hello/call", strings.NewReader(`{"args":{}}`))
			r.Header.Set("Authorization", "Bearer "+adminToken)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
				b.Fatalf("%d %s", w.Code, w.Body)
			}
		})
	}
	for _, c := range call {
		for range round {
			c() // the first calls are slower
		}
	}
	least := make([]time.Duration, len(kinds)) // of a round; other work on the machine only adds to it
	rounds := 0
	for b.Loop() {
		rounds++
		for n := range call {
			i := (n + rounds) % len(call) // none always comes first, after the others' garbage
			used := testkit.CPU(b, func() {
				for range round {
					call[i]()
				}
			})
			if rounds == 1 || used < least[i] {
				least[i] = used
			}
		}
	}
	for i, kind := range kinds {
		b.ReportMetric(float64(least[i].Nanoseconds())/round, "ns-"+kind)
		b.ReportMetric(100*(float64(least[i])/float64(min(least[0], least[1]))-1), "more-"+kind+"-%")
	}
	b.ReportMetric(0, "ns/op")
}
