package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// router measures the router between two pods in this process.
func (l *lab) router(ctx context.Context, callers int) (bench.Figures, error) {
	server, err := l.redis()
	if err != nil {
		return bench.Figures{}, err
	}
	pair, err := startRouterPair(ctx, server.url)
	if err != nil {
		return bench.Figures{}, fmt.Errorf("router: %w", err)
	}
	defer pair.close()
	o := l.Options
	o.Duration = min(o.Duration, 1500*time.Millisecond) // in process nothing has to settle
	var runs []bench.Figures
	for range o.Repeat {
		f, err := o.Drive(ctx, "router", callers, pair.open)
		if err != nil {
			return f, err
		}
		runs = append(runs, f)
	}
	f := bench.MedianFigures(runs)
	l.Step("router, %d callers: %.0f/s, p50 %s, p99 %s, errors %s", callers, f.PerSecond,
		bench.Short(f.P50), bench.Short(f.P99), bench.ErrorsText(f.Errors))
	return f, nil
}

// rowRouterLatency measures one caller, in process, to another pod. It can only be compared with earlier runs.
func rowRouterLatency(ctx context.Context, l *lab) ([]verdict, error) {
	f, err := l.router(ctx, 1)
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "router, cross-pod, in process, 1 caller: p50", Target: "no errors", Met: f.Failed() == 0,
		Measured: fmt.Sprintf("%.0f µs", micros(f.P50)), Detail: fmt.Sprintf("%.0f calls/s", f.PerSecond),
	}}, nil
}

// rowRouterRate measures 1,024 callers, in process, to another pod.
func rowRouterRate(ctx context.Context, l *lab) ([]verdict, error) {
	many, err := l.router(ctx, l.crowds(manyCallers)[0])
	if err != nil {
		return nil, err
	}
	few, err := l.router(ctx, l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	const what = "router, in process, 64 → 1,024 callers: calls/s"
	v := atLeast(what, many.PerSecond, few.PerSecond, 0.85, "calls/s", "that of 64 callers")
	v.Met = v.Met && many.Failed() == 0
	v.Detail = noErrors(many)
	return []verdict{v}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
