package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// At manyCallers throughput must be about the same as at fewCallers.
const (
	fewCallers  = 64
	manyCallers = 1024
)

// crowds returns numbers of callers, smaller ones for a quick run. On a slow machine a thousand callers may get no
// answer in a fraction of a second.
func (o *options) crowds(sizes ...int) []int {
	if o.Quick {
		for i := range sizes {
			sizes[i] = max(1, sizes[i]/32)
		}
	}
	return sizes
}

// profileTime is the length of a profile. At a hundred samples a second its top entries are then reliable.
const profileTime = 8 * time.Second

// workload is how callers use the devices of the first pod, through the second.
type workload struct {
	name    string // in the rows of the table; it also describes spread and devices
	spread  bench.Spread
	devices int
	forever bool // the reference looks a device's pod up once, and not for each call
	callers []int
	rate    float64 // minimum calls/s, relative to the reference
	p50     float64 // maximum relative to the reference, with one caller
}

// workloads are those of the target table. Calls of a real fleet go to any of many devices. A device for each caller is
// the fastest workload: only its first call has to look up the device's pod. Where routes are remembered, the reference
// never asks again, and would not notice that a device moves; Farhand does.
var workloads = []workload{
	{name: "8,000 devices", spread: bench.SpreadUniform, devices: 8000,
		callers: []int{1, fewCallers, 512, manyCallers}, rate: 0.8, p50: 1.3},
	{name: "200 devices", spread: bench.SpreadUniform, devices: 200,
		callers: []int{1, fewCallers, 512}, rate: 0.85, p50: 1.3},
	{name: "8,000 devices, remembered", spread: bench.SpreadUniform, devices: 8000, forever: true,
		callers: []int{1, fewCallers, 512}, rate: 0.75, p50: 1.25},
	{name: "a device per caller", spread: bench.SpreadPinned, devices: 512, forever: true,
		callers: []int{1, fewCallers, 512, manyCallers}, rate: 0.8, p50: 1.3},
}

// workloads returns the workload of --spread, --devices and --callers if set, else those of the target table.
func (o *options) workloads() []workload {
	asked := o.Spread != "" || o.Devices > 0
	list := slices.Clone(workloads)
	if asked {
		w := workloads[0]
		w.spread, w.devices = cmp.Or(o.Spread, w.spread), cmp.Or(o.Devices, w.devices)
		w.forever = w.spread == bench.SpreadPinned
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

// sideBySide measures calls over HTTP across pods, for Farhand and the reference on the same Redis.
func (l *lab) sideBySide(ctx context.Context, w workload) ([]bench.Line, error) {
	f, err := l.startFleet(ctx, l.Fleet)
	if err != nil {
		return nil, err
	}
	defer f.close()
	o := *l.options
	o.Spread, o.Devices = w.spread, o.limited(w.devices)
	ours := sideOf("farhand", f.pods...)
	pods, err := f.addReferences(ctx, 2, !w.forever)
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
	if w.forever && w.spread == bench.SpreadUniform {
		return lines, nil // Farhand does the same as in the first workload, which is profiled
	}
	err = f.profile(fmt.Sprintf("call-%s-%d", w.spread, o.Devices), f.pods[:2], func() error {
		o.Duration = quickOr(l.options, o.Duration, max(o.Duration, profileTime))
		_, err := ours.Measure(ctx, &o.Options, f.probe.RedisProbe, bench.RouteCross, 512)
		return err
	})
	return lines, err
}

// figures returns the measurements of both sides for a workload.
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

// rowCallRate measures HTTP call → other pod → device → HTTP answer, compared with the featureless reference.
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

// rowCallLatency measures the median duration of the same path.
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

// rowCallFlat checks that more callers do not make a pod slower.
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

// rowCallTail checks that the slowest calls are not much slower than the usual ones.
func rowCallTail(_ context.Context, l *lab) ([]verdict, error) {
	f, _, err := l.figures(l.workloads()[0], l.crowds(fewCallers)[0])
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the same, %s, 64 callers: p99", l.workloads()[0].name)
	return []verdict{atMost(what, micros(f.P99), micros(f.P50), 5, "µs", "its p50")}, nil
}

// Maximum cost in Redis of a call to a cold device.
const (
	redisCommands = 4
	redisMicros   = 12
)

// rowCallRedis measures what Redis does for a call of the first workload, including all upkeep.
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
		total := redisTotal(f.Redis)
		commands, micros := total.Count/calls, total.Micros/calls
		list = append(list, verdict{
			What:   fmt.Sprintf("what Redis does for a call, %s, %d callers, upkeep included", w.name, n),
			Target: "≤ 4 commands, ≤ 12 µs", Met: commands <= redisCommands && micros <= redisMicros,
			Measured: fmt.Sprintf("%.2f commands, %.1f µs", commands, micros),
			Detail: fmt.Sprintf(
				"commandstats; commands of scripts count beside the script, in time, too; %d callers: %s",
				n, redisText(f.Redis, calls)),
		})
	}
	return list, nil
}

// noErrors returns a text about errors, empty if there were none.
func noErrors(f bench.Figures) string {
	if f.Failed() == 0 {
		return ""
	}
	return "errors: " + bench.ErrorsText(f.Errors)
}
