package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// routers measures a router that resolves the target of every call, and one that knows the session, in turns. It
// returns the median figures of both.
func (l *lab) routers(ctx context.Context, callers int) (resolving, knowing bench.Figures, err error) {
	server, err := l.redis()
	if err != nil {
		return resolving, knowing, err
	}
	pair, err := startRouterPair(ctx, server.url)
	if err != nil {
		return resolving, knowing, fmt.Errorf("router: %w", err)
	}
	defer pair.close()
	o := *l.options
	o.Duration = min(o.Duration, 1500*time.Millisecond) // in process nothing has to settle
	if callers == 1 {
		// What waking a core up costs is much of what one caller waits for, and changes with what else the machine
		// does. Short turns see both in the same mood.
		o.Duration, o.Repeat = o.Duration/5, o.Repeat*5
		o.Warmup = o.Duration / 5
	}
	names := [2]string{"router", "router, session known"}
	var runs [2][]bench.Figures
	for range o.Repeat {
		for i, resolve := range []bool{true, false} {
			f, err := o.Drive(ctx, names[i], callers, pair.open(resolve))
			if err != nil {
				return resolving, knowing, err
			}
			runs[i] = append(runs[i], f)
		}
	}
	resolving, knowing = bench.MedianFigures(runs[0]), bench.MedianFigures(runs[1])
	for i, f := range []bench.Figures{resolving, knowing} {
		l.Step("%s, %d callers: %.0f/s, p50 %s, p99 %s, errors %s", names[i], callers, f.PerSecond,
			bench.Short(f.P50), bench.Short(f.P99), bench.ErrorsText(f.Errors))
	}
	return resolving, knowing, nil
}

// rowRouterLatency: one caller, in process, another pod. The router resolves the target of every call, from what it
// remembers of the session for a second. There is nothing to hold it against but the run before.
func rowRouterLatency(ctx context.Context, l *lab) ([]verdict, error) {
	resolving, knowing, err := l.routers(ctx, 1)
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "router, cross-pod, in process, 1 caller: p50", Target: "no errors", Met: resolving.Failed() == 0,
		Measured: fmt.Sprintf("%.0f µs", micros(resolving.P50)),
		Detail: fmt.Sprintf("with the session known beforehand: %.0f µs; rates %.0f and %.0f calls/s",
			micros(knowing.P50), resolving.PerSecond, knowing.PerSecond),
	}}, nil
}

// rowRouterRate: 1,024 callers, in process, another pod.
func rowRouterRate(ctx context.Context, l *lab) ([]verdict, error) {
	many, knowing, err := l.routers(ctx, l.crowds(manyCallers)[0])
	if err != nil {
		return nil, err
	}
	few, _, err := l.routers(ctx, l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	const what = "router, in process, 64 → 1,024 callers: calls/s"
	v := atLeast(what, many.PerSecond, few.PerSecond, 0.85, "calls/s", "that of 64 callers")
	v.Met = v.Met && many.Failed() == 0
	v.Detail = fmt.Sprintf("with the session known: %.0f calls/s. Errors: %s",
		knowing.PerSecond, bench.ErrorsText(many.Errors))
	return []verdict{v}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
