package main

import (
	"context"
	"fmt"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// slowRepeat bounds the repetitions of rows that take long.
const slowRepeat = 3

// rowCluster measures the first workload's calls with a fleet on a Redis Cluster, compared with one on a single Redis.
func rowCluster(ctx context.Context, l *lab) ([]verdict, error) {
	w := l.workloads()[0]
	o := l.Options
	o.Spread, o.Devices, o.Repeat = w.spread, l.limited(w.devices), min(o.Repeat, slowRepeat)
	start := []func() (*fleet, error){
		func() (*fleet, error) { return l.startClusterFleet(ctx, 2) },
		func() (*fleet, error) { return l.startFleet(ctx, 2) },
	}
	var sides []*bench.Side
	for i, name := range []string{"cluster", "single"} {
		f, err := start[i]()
		if err != nil {
			return nil, err
		}
		defer f.close()
		s := sideOf(name, f.pods...)
		if err := s.Connect(ctx, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer s.Devices.Close()
		sides = append(sides, s)
	}
	lines, err := o.Compare(ctx, nil, []string{bench.RouteCross}, l.crowds(1, fewCallers, 512), sides...)
	if err != nil {
		return nil, err
	}
	var list []verdict
	for _, line := range lines {
		cluster, single := line.Sides[0], line.Sides[1]
		list = append(list, verdict{
			What:   fmt.Sprintf("calls across pods on a Cluster of six, %s, %d callers", w.name, line.Callers),
			Target: "no errors", Met: cluster.Failed()+single.Failed() == 0,
			Measured: fmt.Sprintf("%.2f × a single Redis (%.0f against %.0f calls/s; p50 %s, %s)",
				cluster.PerSecond/single.PerSecond, cluster.PerSecond, single.PerSecond,
				bench.Short(cluster.P50), bench.Short(single.P50)),
			Detail: noErrors(cluster) + noErrors(single),
		})
	}
	return list, nil
}
