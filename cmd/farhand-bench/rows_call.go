package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// manyCallers is where throughput must still be about what it is at fewCallers.
const (
	fewCallers  = 64
	manyCallers = 1024
)

// crowds returns numbers of callers, smaller ones for a quick run: in a fraction of a second a thousand callers may not
// get a single answer on a slow machine.
func (o *options) crowds(sizes ...int) []int {
	if o.Quick {
		for i := range sizes {
			sizes[i] = max(1, sizes[i]/32)
		}
	}
	return sizes
}

// profileTime is how long a profile is taken: at a hundred samples a second that is enough to trust its top entries.
const profileTime = 8 * time.Second

// sideBySide measures calls over HTTP, on both routes, on pods of ours and of the reference that share a Redis.
func (l *lab) sideBySide(ctx context.Context) ([]bench.Line, error) {
	f, err := l.startFleet(ctx, max(l.Fleet, 2))
	if err != nil {
		return nil, err
	}
	defer f.close()
	ours, reference := &bench.Side{Name: "farhand"}, &bench.Side{Name: "reference"}
	use(ours, f.pods)
	pods, err := f.addReferences(ctx, 2)
	if err != nil {
		return nil, err
	}
	use(reference, pods)
	for _, s := range []*bench.Side{ours, reference} {
		if err := s.Connect(ctx, &l.Options); err != nil {
			return nil, err
		}
		defer s.Devices.Close()
	}
	callers := slices.Clone(l.Callers)
	for _, n := range l.crowds(1, fewCallers, 512, manyCallers) {
		if !slices.Contains(callers, n) {
			callers = append(callers, n)
		}
	}
	slices.Sort(callers)
	lines, err := l.Compare(ctx, f.probe.RedisProbe, []string{bench.RouteCross}, callers, ours, reference)
	if err != nil {
		return nil, err
	}
	local, err := l.Compare(ctx, f.probe.RedisProbe, []string{bench.RouteLocal}, l.crowds(1, fewCallers, 512), ours, reference)
	if err != nil {
		return nil, err
	}
	err = f.profile("call", f.pods[:2], func() error {
		o := *l.options
		if !o.Quick {
			o.Duration = max(o.Duration, profileTime)
		}
		_, err := ours.Measure(ctx, &o.Options, f.probe.RedisProbe, bench.RouteCross, 512)
		return err
	})
	return append(lines, local...), err
}

// figures returns what both sides measured on the route cross.
func (l *lab) figures(callers int) (ours, reference bench.Figures, err error) {
	lines, err := l.lines()
	if err != nil {
		return ours, reference, err
	}
	for _, line := range lines {
		if line.Route == bench.RouteCross && line.Callers == callers {
			return line.Sides[0], line.Sides[1], nil
		}
	}
	return ours, reference, fmt.Errorf("no figures for %d callers", callers)
}

// rowCallRate: HTTP call → other pod → device → HTTP answer, against the featureless reference.
func rowCallRate(_ context.Context, l *lab) ([]verdict, error) {
	var list []verdict
	for _, n := range l.crowds(fewCallers, 512) {
		ours, reference, err := l.figures(n)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("HTTP → other pod → device → HTTP, %d callers", n)
		v := atLeast(what, ours.PerSecond, reference.PerSecond, 0.8, "calls/s", "featureless reference")
		v.Met = v.Met && ours.Failed() == 0
		v.Detail = noErrors(ours)
		list = append(list, v)
	}
	return list, nil
}

// rowCallLatency: the same path, the median of its durations.
func rowCallLatency(_ context.Context, l *lab) ([]verdict, error) {
	var list []verdict
	for _, n := range l.crowds(1, fewCallers, 512) {
		ours, reference, err := l.figures(n)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("the same, p50, %d callers", n)
		list = append(list, atMost(what, micros(ours.P50), micros(reference.P50), 1.3, "µs", "featureless reference"))
	}
	return list, nil
}

// rowCallFlat: more callers do not make a pod slower.
func rowCallFlat(_ context.Context, l *lab) ([]verdict, error) {
	few, _, err := l.figures(l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	many, _, err := l.figures(l.crowds(manyCallers)[0])
	if err != nil {
		return nil, err
	}
	v := atLeast("the same, 64 → 1,024 callers: calls/s", many.PerSecond, few.PerSecond, 0.85, "calls/s", "that of 64 callers")
	v.Met = v.Met && many.Failed() == 0
	v.Detail = noErrors(many)
	return []verdict{v}, nil
}

// rowCallTail: the slowest calls are not far from the usual ones.
func rowCallTail(_ context.Context, l *lab) ([]verdict, error) {
	f, _, err := l.figures(l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	return []verdict{atMost("the same, 64 callers: p99", micros(f.P99), micros(f.P50), 5, "µs", "its p50")}, nil
}

// noErrors is empty, or says what went wrong.
func noErrors(f bench.Figures) string {
	if f.Failed() == 0 {
		return ""
	}
	return "errors: " + bench.ErrorsText(f.Errors)
}
