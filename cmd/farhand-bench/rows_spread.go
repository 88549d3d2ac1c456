package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// spreadFleet is pods with devices at each of them. Callers ask all pods, for any device of any other pod.
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

// callCost is what calls take of the processors, in µs each.
type callCost struct {
	bench.Figures
	pods, redis float64
}

func (c callCost) text() string {
	return fmt.Sprintf("%.0f calls/s, p50 %s, errors %s, Redis %.0f µs, %s",
		c.PerSecond, bench.Short(c.P50), bench.ErrorsText(c.Errors), c.redis, c.Found.Text())
}

// measure has callers call, as many at each pod.
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

// fleetGrowth is how much more processor time a call may take on more pods than on two.
const fleetGrowth = 1.3

// rowFleet: the processor time of a call across the pods, as their number grows.
func rowFleet(ctx context.Context, l *lab) ([]verdict, error) {
	callers := l.crowds(512)[0]
	var two callCost
	var list []verdict
	for _, n := range quickOr(l.options, []int{2, 3}, []int{2, 1, 4, 8}) {
		c, err := l.spreadCost(ctx, n, callers)
		if err != nil {
			return nil, err
		}
		l.Step("%d pods, %d callers: %.0f/s, %.0f µs of the pods and %.0f µs of Redis each", n, callers, c.PerSecond,
			c.pods, c.redis)
		if n == 2 {
			two = c
			continue
		}
		v := atMost(fmt.Sprintf("processor time of a call across the pods, %d pods, %d callers", n, callers),
			c.pods, two.pods, fleetGrowth, "µs", "two pods'")
		v.Met = v.Met && c.Failed() == 0
		v.Detail = fmt.Sprintf("%d pods: %s. Two: %s", n, c.text(), two.text())
		list = append(list, v)
	}
	return list, nil
}

// warm has each pod call each of its targets once, so that the number of pods is compared and not how many first calls
// there are: a route is read once on each pod.
func (f *spreadFleet) warm(ctx context.Context, o *options) error {
	for i, pod := range f.pods {
		o.Note("calling %d devices once by pod %d", len(f.targets[i]), i)
		if err := o.CallEach(ctx, pod.url, benchToken, f.targets[i]); err != nil {
			return err
		}
	}
	return nil
}

// spreadCost measures calls on n pods, several times, and returns the median of the figures.
func (l *lab) spreadCost(ctx context.Context, n, callers int) (callCost, error) {
	f, err := l.startSpreadFleet(ctx, n)
	if err != nil {
		return callCost{}, err
	}
	defer f.close()
	if err := f.warm(ctx, l.options); err != nil {
		return callCost{}, err
	}
	var runs []callCost
	var figures []bench.Figures
	for range min(l.Repeat, slowRepeat) {
		c, err := f.measure(ctx, l.options, callers)
		if err != nil {
			return c, err
		}
		runs, figures = append(runs, c), append(figures, c.Figures)
	}
	return callCost{
		Figures: bench.MedianFigures(figures),
		pods:    bench.MedianOf(runs, func(c callCost) float64 { return c.pods }),
		redis:   bench.MedianOf(runs, func(c callCost) float64 { return c.redis }),
	}, nil
}
