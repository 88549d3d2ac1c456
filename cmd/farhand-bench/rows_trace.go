package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// traceCost is the maximum cost of recording one of 100 traces, as a share of the rate and of the processor time.
const traceCost = 0.03

// rowTraces measures calls across pods that record one of 100 traces, compared with pods that record none.
func rowTraces(ctx context.Context, l *lab) ([]verdict, error) {
	var exports atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		exports.Add(1)
	}))
	defer collector.Close()
	o := l.Options
	o.Spread, o.Devices = bench.SpreadUniform, l.limited(200)
	var sides []*bench.Side
	for _, s := range []struct {
		name     string
		settings []string
	}{
		{"traces", []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL,
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
		}},
		{"none", nil},
	} {
		f, err := l.startFleet(ctx, 2, s.settings...)
		if err != nil {
			return nil, err
		}
		defer f.close()
		side := sideOf(s.name, f.pods...)
		if err := side.Connect(ctx, &o); err != nil {
			return nil, err
		}
		defer side.Devices.Close()
		sides = append(sides, side)
	}
	lines, err := o.Compare(ctx, nil, []string{bench.RouteCross}, l.crowds(1, fewCallers), sides...)
	if err != nil {
		return nil, err
	}
	var list []verdict
	for _, line := range lines {
		traces, none := line.Sides[0], line.Sides[1]
		what := fmt.Sprintf("calls across pods, one of 100 traces recorded, %d callers", line.Callers)
		v := atLeast(what, traces.PerSecond, none.PerSecond, 1-traceCost, "calls/s", "without traces")
		v.Met = v.Met && traces.Failed()+none.Failed() == 0
		v.Detail = noErrors(traces) + noErrors(none)
		list = append(list, v, atMost(what+": processors", processorTime(traces), processorTime(none), 1+traceCost,
			"µs per call", "without traces"))
	}
	if exports.Load() == 0 && !l.Quick { // pods export every five seconds
		return nil, fmt.Errorf("the collector got no trace: pods did not record any")
	}
	return list, nil
}
