package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// growthDevices is the number of devices in measurements of calls.
const growthDevices = 128

// measureGrowth measures how cost grows with pods, sessions, tools and payload, changing one at a time, and prints
// Markdown tables.
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

// table prints the head of a Markdown table.
func (o *options) table(title string, columns ...string) {
	o.Note("")
	fmt.Fprintf(o.Out, "\n%s\n\n| %s |\n|%s\n", title, strings.Join(columns, " | "),
		strings.Repeat(" --- |", len(columns)))
}

// row prints a row of it.
func (o *options) row(cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(o.Out, "| %v ", cell)
	}
	fmt.Fprintln(o.Out, "|")
}

// growthPods measures the first workload on more and more pods.
func growthPods(ctx context.Context, o *options) error {
	o.table("Pods (callers and devices spread over all pods, every call to another pod; one machine for everything, "+
		"so the sum of the pods cannot grow)",
		"pods", "callers", "calls/s", "p50", "p99", "errors", "CPU per call, pods", "Redis, per call", "found")
	for _, n := range quickOr(o, []int{1, 2}, []int{1, 2, 4, 8}) {
		f, err := o.warmFleet(ctx, n)
		if err != nil {
			return err
		}
		err = f.printRows(ctx, o)
		f.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *spreadFleet) printRows(ctx context.Context, o *options) error {
	for _, callers := range o.crowds(fewCallers, 512) {
		c, err := f.measure(ctx, o, callers)
		if err != nil {
			return err
		}
		o.row(len(f.pods), callers, round(c.PerSecond), bench.Short(c.P50), bench.Short(c.P99),
			bench.ErrorsText(c.Errors), fmt.Sprintf("%.0f µs", c.pods), fmt.Sprintf("%.0f µs", c.redis), c.Found.Text())
	}
	return nil
}

func round(f float64) string { return fmt.Sprintf("%.0f", f) }

// idle connects sessions to a fresh pod, measures its memory and its heartbeats, and returns the cells of idleColumns.
func (o *options) idle(ctx context.Context, sessions, tools int) (m idleFigures, cells []any, err error) {
	interval, setting := o.beatSettings()
	f, err := o.startFleet(ctx, 1, setting)
	if err != nil {
		return m, nil, err
	}
	defer f.close()
	m, devices, err := f.connectIdle(ctx, o, sessions/20, sessions, tools)
	if err != nil {
		return m, nil, err
	}
	defer devices.Close()
	all := len(devices.Sessions())
	b, err := f.heartbeat(ctx, all, time.Duration(quickOr(o, 1, 3))*interval)
	const usual = 20 * time.Second // a third of the default TTL
	slower := interval.Seconds() / usual.Seconds()
	return m, []any{
		fmt.Sprintf("%.1f KB", m.resident/1e3), fmt.Sprintf("%.1f KB", (m.heap+m.stacks)/1e3),
		fmt.Sprintf("%.0f B", m.redis), fmt.Sprintf("%.2f", b.commands*interval.Seconds()/float64(all)),
		round(b.commands * slower), round(b.reads * slower), fmt.Sprintf("%.1f %%", b.podCPU*slower*100),
	}, err
}

// idleColumns are the costs of idle sessions, each, and of all together at a pod's default interval.
var idleColumns = []string{
	"pod, resident, each", "heap and stacks, each", "Redis, each", "commands per refresh of one", "commands/s of all",
	"reads/s by Redis", "CPU of the idle pod",
}

// growthSessions measures idle sessions of one pod.
func growthSessions(ctx context.Context, o *options) error {
	o.table("Sessions per pod (idle, five tools each; heartbeats at the default interval of 20 s, computed from one "+
		"of 4 s)",
		append([]string{"sessions", "connected/s"}, idleColumns...)...)
	for _, n := range quickOr(o, []int{50}, []int{1000, 5000, 15_000}) {
		m, cells, err := o.idle(ctx, n, idleTools)
		if err != nil {
			return err
		}
		o.row(append([]any{n, round(float64(n) / m.connect.Seconds())}, cells...)...)
	}
	return nil
}

// growthTools measures more tools per session, idle and called.
func growthTools(ctx context.Context, o *options) error {
	sessions := quickOr(o, 20, 1000)
	o.table(fmt.Sprintf("Tools per session (%d idle sessions; calls with 64 callers to another pod)", sessions),
		append([]string{"tools", "calls/s", "p50", "errors"}, idleColumns...)...)
	for _, n := range quickOr(o, []int{1, 5}, []int{1, 5, 50}) {
		_, cells, err := o.idle(ctx, sessions, n)
		if err != nil {
			return err
		}
		with := *o
		with.Tools = n
		fig, err := with.crossCalls(ctx, fewCallers)
		if err != nil {
			return err
		}
		head := []any{n, round(fig.PerSecond), bench.Short(fig.P50), bench.ErrorsText(fig.Errors)}
		o.row(append(head, cells...)...)
	}
	return nil
}

// growthPayload measures larger calls, each way.
func growthPayload(ctx context.Context, o *options) error {
	const callers = 16 // so that large payloads do not reach limits
	o.table(fmt.Sprintf("Payload (each way; %d callers to another pod)", callers),
		"payload", "calls/s", "p50", "p99", "errors", "MB/s each way", "used")
	for _, n := range quickOr(o, []int{100, 10_000}, []int{100, 10_000, bench.MaxPayload}) {
		with := *o
		with.Payload = n
		fig, err := with.crossCalls(ctx, callers)
		if err != nil {
			return err
		}
		o.row(fmt.Sprintf("%d B", n), round(fig.PerSecond), bench.Short(fig.P50), bench.Short(fig.P99),
			bench.ErrorsText(fig.Errors), fmt.Sprintf("%.1f", fig.PerSecond*float64(n)/1e6), bench.UsageText(fig.Usage))
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
	s := sideOf("farhand", f.pods...)
	with := o.Options
	with.Devices = o.limited(growthDevices)
	if err := s.Connect(ctx, &with); err != nil {
		return bench.Figures{}, err
	}
	defer s.Devices.Close()
	return s.Measure(ctx, &with, f.probe.RedisProbe, bench.RouteCross, callers)
}
