package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// growthDevices are called where it is calls that are measured.
const growthDevices = 128

// measureGrowth measures how cost grows with pods, sessions, tools and payload, each with everything else held still,
// and prints Markdown tables.
func measureGrowth(ctx context.Context, o *options) error {
	tables := []func(context.Context, *options) error{growthPods, growthSessions, growthTools, growthPayload}
	for _, table := range tables {
		if err := table(ctx, o); err != nil {
			return err
		}
	}
	o.Note("")
	return nil
}

// sizes returns the sizes of a table, or small ones for a quick run.
func (o *options) sizes(all, quick []int) []int {
	if o.Quick {
		return quick
	}
	return all
}

func (o *options) markdown(title, header, rule string) {
	o.Note("")
	fmt.Fprintf(o.Out, "\n%s\n\n%s\n%s\n", title, header, rule)
}

// growthPods: devices and callers spread over all pods, and every call to the next pod.
func growthPods(ctx context.Context, o *options) error {
	o.markdown("Pods (calls to the next pod; one machine for everything, so the sum of the pods cannot grow)",
		"| pods | callers | calls/s | p50 | p99 | errors | CPU of the pods | Redis CPU | CPU per call, pods | Redis |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range o.sizes([]int{1, 2, 4}, []int{1, 2}) {
		if err := o.growthPodsOf(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) growthPodsOf(ctx context.Context, n int) error {
	f, err := o.startFleet(ctx, n)
	if err != nil {
		return err
	}
	defer f.close()
	var sides []*bench.Side
	for i := range f.pods {
		s := &bench.Side{Name: "farhand"}
		use(s, []*child{f.pods[i], f.pods[(i+1)%n]})
		even := *o
		even.Devices = max(o.Devices/n, 1)
		if err := s.Connect(ctx, &even.Options); err != nil {
			return err
		}
		defer s.Devices.Close()
		sides = append(sides, s)
	}
	all := &bench.Side{}
	use(all, f.pods)
	for _, callers := range []int{64, 512} {
		watch := bench.WatchPIDs(all.Names, all.PIDs)
		before, err := f.probe.Load(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		fig, err := o.Drive(ctx, fmt.Sprintf("%d pods", n), callers, func(i int) (bench.Caller, error) {
			s := sides[i%n]
			return s.Open(&o.Options, bench.RouteCross)(i / n)
		})
		if err != nil {
			return err
		}
		after, err := f.probe.Load(ctx)
		if err != nil {
			return err
		}
		cpu := 0.0
		for _, u := range watch.Usage() {
			cpu += u.CPU
		}
		redis := before.Usage(after).CPU
		calls := fig.PerSecond * time.Since(began).Seconds() // warm-up included, as in the CPU
		perCall := func(share float64) float64 { return share * time.Since(began).Seconds() / calls * 1e6 }
		fmt.Fprintf(o.Out, "| %d | %d | %.0f | %s | %s | %s | %.0f %% | %.0f %% | %.0f µs | %.0f µs |\n", n, callers, fig.PerSecond,
			bench.Short(fig.P50), bench.Short(fig.P99), bench.ErrorsText(fig.Errors), cpu*100, redis*100, perCall(cpu), perCall(redis))
	}
	return nil
}

// idleCost is what idle sessions of one pod take.
type idleCost struct {
	weight
	heartbeat
	connect  time.Duration
	interval time.Duration // of the heartbeats
}

// idle connects sessions to a fresh pod, weighs it, and watches its heartbeats.
func (o *options) idle(ctx context.Context, sessions, tools int) (before, after idleCost, err error) {
	interval, setting := o.beatSettings()
	after.interval = interval
	f, err := o.startFleet(ctx, 1, setting)
	if err != nil {
		return before, after, err
	}
	defer f.close()
	first := max(sessions/20, 10)
	devices, err := bench.ConnectSwarm(ctx, f.pods[0].url, benchToken, "first", first, tools)
	if err != nil {
		return before, after, err
	}
	defer devices.Close()
	if before.weight, err = f.weigh(ctx); err != nil {
		return before, after, err
	}
	o.Note("connecting %d devices with %d tools", sessions, tools)
	began := time.Now()
	if err = devices.Add(f.pods[0].url, "idle", sessions); err != nil {
		return before, after, err
	}
	after.connect = time.Since(began)
	if after.weight, err = f.weigh(ctx); err != nil {
		return before, after, err
	}
	cycles := 3
	if o.Quick {
		cycles = 1
	}
	after.heartbeat, err = f.heartbeat(ctx, sessions+first, time.Duration(cycles)*interval)
	return before, after, err
}

// idleCells renders what idle sessions take, each, and all together at the interval a pod has by default.
func idleCells(sessions int, before, after idleCost) string {
	each := func(a, b int64) float64 { return float64(b-a) / float64(sessions) }
	const usual = 20 * time.Second // a third of the default TTL
	slower := after.interval.Seconds() / usual.Seconds()
	return fmt.Sprintf("%.1f KB | %.1f KB | %.0f B | %.2f | %.0f | %.0f | %.1f %% |", each(before.resident, after.resident)/1e3,
		each(int64(before.Heap+before.Stacks), int64(after.Heap+after.Stacks))/1e3, each(before.redis, after.redis),
		after.commands*after.interval.Seconds()/float64(after.sessions), after.commands*slower, after.reads*slower, after.podCPU*slower*100)
}

const idleHeader = " pod, resident, each | heap and stacks, each | Redis, each | commands per refresh of one | commands/s of all | reads/s by Redis | CPU of the idle pod |"

// growthSessions: idle sessions of one pod.
func growthSessions(ctx context.Context, o *options) error {
	o.markdown("Sessions per pod (idle, five tools each; heartbeats at the default interval of 20 s, computed from one of 4 s)",
		"| sessions | connected/s |"+idleHeader, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range o.sizes([]int{1000, 5000, 15_000}, []int{50}) {
		before, after, err := o.idle(ctx, n, idleTools)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "| %d | %.0f | %s\n", n, float64(n)/after.connect.Seconds(), idleCells(n, before, after))
	}
	return nil
}

// growthTools: more tools per session, idle and called.
func growthTools(ctx context.Context, o *options) error {
	sessions := 1000
	if o.Quick {
		sessions = 20
	}
	o.markdown(fmt.Sprintf("Tools per session (%d idle sessions; calls with 64 callers to another pod)", sessions),
		"| tools | calls/s | p50 | errors |"+idleHeader, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range o.sizes([]int{1, 5, 50}, []int{1, 5}) {
		before, after, err := o.idle(ctx, sessions, n)
		if err != nil {
			return err
		}
		with := *o
		with.Tools = n
		fig, err := with.crossCalls(ctx, fewCallers)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "| %d | %.0f | %s | %s | %s\n", n, fig.PerSecond, bench.Short(fig.P50), bench.ErrorsText(fig.Errors), idleCells(sessions, before, after))
	}
	return nil
}

// growthPayload: what a call carries, each way.
func growthPayload(ctx context.Context, o *options) error {
	const callers = 16 // so that large payloads are no test of limits
	o.markdown(fmt.Sprintf("Payload (each way; %d callers to another pod)", callers),
		"| payload | calls/s | p50 | p99 | errors | MB/s each way | used |", "| --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range o.sizes([]int{100, 10_000, bench.MaxPayload}, []int{100, 10_000}) {
		with := *o
		with.Payload = n
		fig, err := with.crossCalls(ctx, callers)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Out, "| %d B | %.0f | %s | %s | %s | %.1f | %s |\n", n, fig.PerSecond, bench.Short(fig.P50), bench.Short(fig.P99), bench.ErrorsText(fig.Errors),
			fig.PerSecond*float64(n)/1e6, bench.UsageText(fig.Usage))
	}
	return nil
}

// crossCalls measures calls to another pod on a fresh fleet.
func (o *options) crossCalls(ctx context.Context, callers int) (bench.Figures, error) {
	f, err := o.startFleet(ctx, 2)
	if err != nil {
		return bench.Figures{}, err
	}
	defer f.close()
	s := &bench.Side{Name: "farhand"}
	use(s, f.pods)
	with := *o
	with.Devices = growthDevices
	if err := s.Connect(ctx, &with.Options); err != nil {
		return bench.Figures{}, err
	}
	defer s.Devices.Close()
	return s.Measure(ctx, &with.Options, f.probe.RedisProbe, bench.RouteCross, callers)
}
