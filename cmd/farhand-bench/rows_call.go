package main

import (
	"cmp"
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

// workload is how callers use the devices of the first pod, by way of the second.
type workload struct {
	name    string // of the rows: what stands behind it on the command line
	spread  bench.Spread
	devices int
	callers []int
	rate    float64 // least calls/s, of the reference's
	p50     float64 // most, of the reference's, with one caller
}

// workloads are those of the target table. Calls of a fleet go to any of many devices. A device for each caller is the
// workload that is served best: nothing but the first call has to find out where the device is.
var workloads = []workload{
	{name: "8,000 devices", spread: bench.SpreadUniform, devices: 8000,
		callers: []int{1, fewCallers, 512, manyCallers}, rate: 0.8, p50: 1.3},
	{name: "200 devices", spread: bench.SpreadUniform, devices: 200,
		callers: []int{1, fewCallers, 512}, rate: 0.85, p50: 1.3},
	{name: "a device per caller", spread: bench.SpreadPinned, devices: 512,
		callers: []int{1, fewCallers, 512, manyCallers}, rate: 0.8, p50: 1.3},
}

// workloads returns the one that --spread, --devices and --callers ask for, or else those of the target table.
func (o *options) workloads() []workload {
	asked := o.Spread != "" || o.Devices > 0
	list := slices.Clone(workloads)
	if asked {
		w := workloads[0]
		w.spread, w.devices = cmp.Or(o.Spread, w.spread), cmp.Or(o.Devices, w.devices)
		w.name = fmt.Sprintf("%s over %d devices", w.spread, w.devices)
		list = []workload{w}
	}
	for i := range list {
		if len(o.Callers) > 0 {
			list[i].callers = o.Callers
		}
		list[i].callers = o.crowds(slices.Clone(list[i].callers)...)
	}
	return list
}

// sideBySide measures calls over HTTP across pods, of ours and of the reference, that share a Redis.
func (l *lab) sideBySide(ctx context.Context, w workload) ([]bench.Line, error) {
	f, err := l.startFleet(ctx, l.Fleet)
	if err != nil {
		return nil, err
	}
	defer f.close()
	o := *l.options
	o.Spread, o.Devices = w.spread, o.limited(w.devices)
	ours := sideOf("farhand", f.pods...)
	pods, err := f.addReferences(ctx, 2, w.spread != bench.SpreadPinned)
	if err != nil {
		return nil, err
	}
	reference := sideOf("reference", pods...)
	for _, s := range []*bench.Side{ours, reference} {
		if err := s.Connect(ctx, &o.Options); err != nil {
			return nil, err
		}
		defer s.Devices.Close()
	}
	lines, err := o.Compare(ctx, f.probe.RedisProbe, []string{bench.RouteCross}, w.callers, ours, reference)
	if err != nil {
		return nil, err
	}
	for i := range lines {
		lines[i].Workload = w.name
	}
	err = f.profile(fmt.Sprintf("call-%s-%d", w.spread, o.Devices), f.pods[:2], func() error {
		o.Duration = quickOr(l.options, o.Duration, max(o.Duration, profileTime))
		_, err := ours.Measure(ctx, &o.Options, f.probe.RedisProbe, bench.RouteCross, 512)
		return err
	})
	return lines, err
}

// figures returns what both sides measured of a workload.
func (l *lab) figures(w workload, callers int) (ours, reference bench.Figures, err error) {
	lines, err := l.lines(w)
	if err != nil {
		return ours, reference, err
	}
	for _, line := range lines {
		if line.Callers == callers {
			return line.Sides[0], line.Sides[1], nil
		}
	}
	return ours, reference, fmt.Errorf("no figures for %d callers", callers)
}

// rowCallRate: HTTP call → other pod → device → HTTP answer, against the featureless reference.
func rowCallRate(_ context.Context, l *lab) ([]verdict, error) {
	var list []verdict
	for _, w := range l.workloads() {
		for _, n := range w.callers {
			if n == l.crowds(1)[0] || n == l.crowds(manyCallers)[0] {
				continue
			}
			ours, reference, err := l.figures(w, n)
			if err != nil {
				return nil, err
			}
			what := fmt.Sprintf("calls across pods, %s, %d callers", w.name, n)
			v := atLeast(what, ours.PerSecond, reference.PerSecond, w.rate, "calls/s", "featureless reference")
			v.Met = v.Met && ours.Failed() == 0
			v.Detail = noErrors(ours)
			list = append(list, v)
		}
	}
	return list, nil
}

// rowCallLatency: the same path, the median of its durations.
func rowCallLatency(_ context.Context, l *lab) ([]verdict, error) {
	var list []verdict
	for _, w := range l.workloads() {
		if !slices.Contains(w.callers, 1) {
			continue
		}
		ours, reference, err := l.figures(w, 1)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("the same, %s, one caller: p50", w.name)
		list = append(list, atMost(what, micros(ours.P50), micros(reference.P50), w.p50, "µs", "featureless reference"))
	}
	return list, nil
}

// rowCallFlat: more callers do not make a pod slower.
func rowCallFlat(_ context.Context, l *lab) ([]verdict, error) {
	few, _, err := l.figures(l.workloads()[0], l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	many, _, err := l.figures(l.workloads()[0], l.crowds(manyCallers)[0])
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the same, %s, 64 → 1,024 callers: calls/s", l.workloads()[0].name)
	v := atLeast(what, many.PerSecond, few.PerSecond, 0.85, "calls/s", "that of 64 callers")
	v.Met = v.Met && many.Failed() == 0
	v.Detail = noErrors(many)
	return []verdict{v}, nil
}

// rowCallTail: the slowest calls are not far from the usual ones.
func rowCallTail(_ context.Context, l *lab) ([]verdict, error) {
	f, _, err := l.figures(l.workloads()[0], l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the same, %s, 64 callers: p99", l.workloads()[0].name)
	return []verdict{atMost(what, micros(f.P99), micros(f.P50), 5, "µs", "its p50")}, nil
}

// What a call to a cold device may take of Redis.
const (
	redisCommands = 4
	redisMicros   = 12
)

// rowCallRedis: what Redis does for a call of the first workload, all upkeep included.
func rowCallRedis(_ context.Context, l *lab) ([]verdict, error) {
	w := l.workloads()[0]
	var list []verdict
	for _, n := range w.callers {
		if n == l.crowds(1)[0] || n == l.crowds(manyCallers)[0] {
			continue
		}
		f, _, err := l.figures(w, n)
		if err != nil {
			return nil, err
		}
		calls := float64(f.AllCalls)
		total := f.Redis.Total()
		commands, micros := total.Count/calls, total.Micros/calls
		list = append(list, verdict{
			What:   fmt.Sprintf("what Redis does for a call, %s, %d callers, upkeep included", w.name, n),
			Target: "≤ 4 commands, ≤ 12 µs", Met: commands <= redisCommands && micros <= redisMicros,
			Measured: fmt.Sprintf("%.2f commands, %.1f µs", commands, micros),
			Detail: fmt.Sprintf(
				"commandstats; commands of scripts count beside the script, in time, too; %d callers: %s",
				n, f.Redis.Text(calls)),
		})
	}
	return list, nil
}

// noErrors is empty, or says what went wrong.
func noErrors(f bench.Figures) string {
	if f.Failed() == 0 {
		return ""
	}
	return "errors: " + bench.ErrorsText(f.Errors)
}
