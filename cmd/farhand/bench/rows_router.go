package bench

import (
	"context"
	"fmt"
	"time"
)

// shapeMaker makes one of the shapes that are compared.
type shapeMaker struct {
	name string
	make func(ctx context.Context, url string) (shape, error)
}

var (
	ourRouter     = shapeMaker{"router", func(ctx context.Context, url string) (shape, error) { return newRouterShape(ctx, url, true) }}
	ourCall       = shapeMaker{"router, session known", func(ctx context.Context, url string) (shape, error) { return newRouterShape(ctx, url, false) }}
	bareDirect    = shapeMaker{"bare", func(_ context.Context, url string) (shape, error) { return newListShape(url, false, jsonCodec) }}
	barePipelined = shapeMaker{"bare auto-pipelined", func(_ context.Context, url string) (shape, error) { return newListShape(url, true, jsonCodec) }}
	bareRaw       = shapeMaker{"bare auto-pipelined, raw bytes", func(_ context.Context, url string) (shape, error) { return newListShape(url, true, rawCodec) }}
	psrpc         = shapeMaker{"psrpc's shape", func(_ context.Context, url string) (shape, error) { return newPsrpcShape(url) }}
)

// compareShapes measures shapes in turns and returns the median figures of each.
func (l *lab) compareShapes(ctx context.Context, callers int, makers ...shapeMaker) ([]Figures, error) {
	server, err := l.redis()
	if err != nil {
		return nil, err
	}
	shapes := make([]shape, len(makers))
	for i, m := range makers {
		if shapes[i], err = m.make(ctx, server.url); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		defer shapes[i].close()
	}
	o := *l.Options
	o.Duration = min(o.Duration, 1500*time.Millisecond) // in process nothing has to settle
	if callers == 1 {
		// What waking a core up costs is much of what one caller waits for, and changes with what else the machine
		// does. Short turns see all shapes in the same mood.
		o.Duration, o.Repeat = o.Duration/5, o.Repeat*5
		o.Warmup = o.Duration / 5
	}
	runs := make([][]Figures, len(makers))
	for range o.Repeat {
		for i, s := range shapes {
			f, err := drive(ctx, o.plan(makers[i].name, callers), s.open)
			if err == nil {
				err = f.check(makers[i].name)
			}
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], f)
		}
	}
	medians := make([]Figures, len(makers))
	for i, r := range runs {
		medians[i] = medianFigures(r)
		l.step("%s, %d callers: %.0f/s, p50 %s, p99 %s, errors %s", makers[i].name, callers, medians[i].PerSecond,
			shortly(medians[i].P50), shortly(medians[i].P99), errorsText(medians[i].Errors))
	}
	return medians, nil
}

// rowRouterLatency: one caller, in process, another pod: close to the bare shape. The router resolves the target of every
// call, from what it remembers of the session for a second; without that, as in the shape, is printed beside it.
func rowRouterLatency(ctx context.Context, l *lab) ([]Verdict, error) {
	f, err := l.compareShapes(ctx, 1, ourRouter, ourCall, bareDirect)
	if err != nil {
		return nil, err
	}
	v := atMost("router, cross-pod, in process, 1 caller: p50", micros(f[0].P50), micros(f[2].P50), 1.3, "µs", "bare pod-list shape")
	v.Detail = fmt.Sprintf("with the session known beforehand, as in the bare shape: %.0f µs, %.2f ×; rates %.0f, %.0f, %.0f calls/s",
		micros(f[1].P50), micros(f[1].P50)/micros(f[2].P50), f[0].PerSecond, f[1].PerSecond, f[2].PerSecond)
	v.Met = v.Met && f[0].failed() == 0
	return []Verdict{v}, nil
}

// rowRouterRate: 1,024 callers, in process, another pod.
func rowRouterRate(ctx context.Context, l *lab) ([]Verdict, error) {
	f, err := l.compareShapes(ctx, l.crowds(manyCallers)[0], ourRouter, ourCall, barePipelined, psrpc, bareRaw)
	if err != nil {
		return nil, err
	}
	few, err := l.compareShapes(ctx, l.crowds(fewCallers)[0], ourRouter, barePipelined, psrpc)
	if err != nil {
		return nil, err
	}
	clean := f[0].failed() == 0
	a := atLeast("router, cross-pod, in process, 1,024 callers: calls/s", f[0].PerSecond, f[3].PerSecond, 1.2, "calls/s", "psrpc's shape")
	b := atLeast("the same", f[0].PerSecond, f[2].PerSecond, 0.9, "calls/s", "bare auto-pipelined shape")
	c := atLeast("router, in process, 64 → 1,024 callers: calls/s", f[0].PerSecond, few[0].PerSecond, 0.85, "calls/s", "that of 64 callers")
	a.Met, b.Met, c.Met = a.Met && clean, b.Met && clean, c.Met && clean
	a.Detail = fmt.Sprintf("with the session known: %.0f calls/s; bare auto-pipelined with raw bytes for JSON: %.0f calls/s. "+
		"At 64 callers: router %.0f, bare auto-pipelined %.0f, psrpc's shape %.0f calls/s. Errors: %s",
		f[1].PerSecond, f[4].PerSecond, few[0].PerSecond, few[1].PerSecond, few[2].PerSecond, errorsText(f[0].Errors))
	return []Verdict{a, b, c}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
