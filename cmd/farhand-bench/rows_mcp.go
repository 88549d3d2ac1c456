package main

import (
	"context"
	"fmt"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

const (
	mcpTools   = 100 // in scope
	mcpDevices = 20
	// Maximum cost of a call over MCP relative to the same call over HTTP: of its median, and of its processor time.
	mcpTime, mcpProcessor = 2, 3
)

// rowMCP measures tools/call over MCP across pods, compared with the same call over HTTP, to the same devices.
func rowMCP(ctx context.Context, l *lab) ([]verdict, error) {
	f, err := l.startFleet(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer f.close()
	o := l.Options
	o.Spread, o.Devices, o.Tools = bench.SpreadPinned, mcpDevices, mcpTools/mcpDevices
	plain, over := sideOf("http", f.pods...), sideOf("mcp", f.pods...)
	if err := plain.Connect(ctx, &o); err != nil {
		return nil, err
	}
	defer plain.Devices.Close()
	over.Devices = plain.Devices
	over.NewCaller = func(pod string, sessions []string, i int) bench.Caller {
		return newMCPCaller(pod, sessions[i%len(sessions)], o.Payload)
	}
	lines, err := o.Compare(ctx, nil, []string{bench.RouteCross}, l.crowds(1, fewCallers), over, plain)
	if err != nil {
		return nil, err
	}
	var list []verdict
	for _, line := range lines {
		what := fmt.Sprintf("calls across pods over MCP, %d tools in scope, %d callers", mcpTools, line.Callers)
		list = append(list, mcpVerdicts(what, line.Sides[0], line.Sides[1])...)
	}
	err = f.profile("mcp", f.pods, func() error {
		o.Duration = quickOr(l.options, o.Duration, max(o.Duration, profileTime))
		_, err := over.Measure(ctx, &o, nil, bench.RouteCross, fewCallers)
		return err
	})
	return list, err
}

func mcpVerdicts(what string, mcp, http bench.Figures) []verdict {
	p50 := atMost(what+": p50", micros(mcp.P50), micros(http.P50), mcpTime, "µs", "HTTP")
	p50.Met = p50.Met && mcp.Failed()+http.Failed() == 0
	p50.Detail = noErrors(mcp) + noErrors(http)
	return []verdict{p50, atMost(what+": processors", processorTime(mcp), processorTime(http), mcpProcessor,
		"µs per call", "HTTP")}
}

// processorTime returns the processor time of all pods for one call, in microseconds.
func processorTime(f bench.Figures) float64 {
	var share float64
	for _, u := range f.Usage {
		share += u.CPU
	}
	return share / f.PerSecond * 1e6
}
