package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// spreadFleet is pods with devices on each. Callers use all pods, and call any device of any other pod.
type spreadFleet struct {
	*fleet
	side    *bench.Side
	swarms  []*bench.Swarm
	targets [][]string // by pod: the sessions of the others; with a single pod, its own
}

// startSpreadFleet starts n pods and connects the devices of the first workload to them.
func (o *options) startSpreadFleet(ctx context.Context, n int) (*spreadFleet, error) {
	plain, err := o.startFleet(ctx, n)
	if err != nil {
		return nil, err
	}
	f := &spreadFleet{fleet: plain, side: sideOf("farhand", plain.pods...), targets: make([][]string, n)}
	devices := max(o.limited(cmp.Or(o.Devices, workloads[0].devices))/n, 1)
	o.Step("connecting %d devices to each of %d pods", devices, n)
	for i, pod := range f.pods {
		s, err := bench.ConnectSwarm(ctx, pod.url, benchToken, fmt.Sprintf("spread%d", i), devices, idleTools)
		if err != nil {
			f.close()
			return nil, err
		}
		f.swarms = append(f.swarms, s)
		for asked := range f.targets {
			if asked != i || n == 1 {
				f.targets[asked] = append(f.targets[asked], s.Sessions()...)
			}
		}
	}
	return f, nil
}

func (f *spreadFleet) close() {
	for _, s := range f.swarms {
		s.Close()
	}
	f.fleet.close()
}

// callCost is the processor time of calls, in µs each.
type callCost struct {
	bench.Figures
	pods, redis float64
}

func (c callCost) text() string {
	return fmt.Sprintf("%.0f calls/s, p50 %s, errors %s, Redis %.0f µs, %s",
		c.PerSecond, bench.Short(c.P50), bench.ErrorsText(c.Errors), c.redis, c.Found.Text())
}

// measure runs callers, the same number on each pod.
func (f *spreadFleet) measure(ctx context.Context, o *options, callers int) (callCost, error) {
	with := o.Options
	with.Spread = cmp.Or(o.Spread, bench.SpreadUniform)
	began := time.Now()
	fig, err := f.side.MeasureCallers(ctx, &with, f.probe.RedisProbe, fmt.Sprintf("%d pods", len(f.pods)), callers,
		func(i int) (bench.Caller, error) {
			pod := i % len(f.pods)
			return with.NewCaller(f.pods[pod].url, benchToken, f.targets[pod], i), nil
		})
	if err != nil {
		return callCost{}, err
	}
	length := time.Since(began).Seconds()
	c := callCost{Figures: fig}
	for _, u := range fig.Usage {
		each := u.CPU * length / float64(fig.AllCalls) * 1e6
		if u.Name == "redis" {
			c.redis = each
		} else {
			c.pods += each
		}
	}
	for _, s := range f.swarms {
		if err := s.Lost(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// fleetGrowth is the maximum processor time of a call on more pods, relative to two.
const fleetGrowth = 1.3

// rowFleet measures the processor time of a call across the pods, as their number grows. Each number of pods alternates
// with two pods, because the speed of a shared machine varies.
func rowFleet(ctx context.Context, l *lab) ([]verdict, error) {
	callers := l.crowds(512)[0]
	two, err := l.warmFleet(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer two.close()
	var list []verdict
	for _, n := range quickOr(l.options, []int{3}, []int{1, 4, 8}) {
		v, err := l.besideTwo(ctx, two, n, callers)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// besideTwo measures calls on n pods, alternating with calls on two.
func (l *lab) besideTwo(ctx context.Context, two *spreadFleet, n, callers int) (verdict, error) {
	f, err := l.warmFleet(ctx, n)
	if err != nil {
		return verdict{}, err
	}
	defer f.close()
	fleets, costs := [2]*spreadFleet{two, f}, [2][]callCost{}
	for range min(l.Repeat, slowRepeat) {
		for i, fleet := range fleets {
			c, err := fleet.measure(ctx, l.options, callers)
			if err != nil {
				return verdict{}, err
			}
			costs[i] = append(costs[i], c)
		}
	}
	base, c := medianCost(costs[0]), medianCost(costs[1])
	for _, s := range []struct {
		pods int
		cost callCost
	}{{2, base}, {n, c}} {
		l.Step("%d pods, %d callers: %.0f/s, %.0f µs of the pods and %.0f µs of Redis each", s.pods, callers,
			s.cost.PerSecond, s.cost.pods, s.cost.redis)
	}
	v := atMost(fmt.Sprintf("processor time of a call across the pods, %d pods, %d callers", n, callers),
		c.pods, base.pods, fleetGrowth, "µs", "two pods'")
	v.Met = v.Met && c.Failed()+base.Failed() == 0
	v.Detail = fmt.Sprintf("%d pods: %s. Two: %s", n, c.text(), base.text())
	return v, nil
}

// medianCost returns the median of each figure.
func medianCost(runs []callCost) callCost {
	figures := make([]bench.Figures, len(runs))
	for i, c := range runs {
		figures[i] = c.Figures
	}
	return callCost{
		Figures: bench.MedianFigures(figures),
		pods:    bench.MedianOf(runs, func(c callCost) float64 { return c.pods }),
		redis:   bench.MedianOf(runs, func(c callCost) float64 { return c.redis }),
	}
}

// warmFleet starts n pods and makes each of them call each of its targets once. A pod reads each route once, so
// otherwise the numbers of first calls would be compared instead of the numbers of pods.
func (o *options) warmFleet(ctx context.Context, n int) (*spreadFleet, error) {
	f, err := o.startSpreadFleet(ctx, n)
	if err != nil {
		return nil, err
	}
	for i, pod := range f.pods {
		o.Note("calling %d devices once by pod %d", len(f.targets[i]), i)
		if err := callEach(ctx, pod.url, f.targets[i], o.Payload); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}
