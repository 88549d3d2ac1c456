package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// verdict is one line of the target table.
type verdict struct {
	Row      string `json:"row"`
	What     string `json:"what"`
	Target   string `json:"target"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
	Detail   string `json:"detail,omitempty"`
}

func (v verdict) text() string {
	if v.Met {
		return "ok"
	}
	return "MISSED"
}

// targetRow is one row of the target table: a name for --only and its measurement.
type targetRow struct {
	name    string
	measure func(ctx context.Context, l *lab) ([]verdict, error)
}

// rows is the target table in print order.
var rows = []targetRow{
	{"router-p50", rowRouterLatency},
	{"router-rate", rowRouterRate},
	{"call-rate", rowCallRate},
	{"call-p50", rowCallLatency},
	{"call-flat", rowCallFlat},
	{"call-tail", rowCallTail},
	{"call-redis", rowCallRedis},
	{"who", rowWho},
	{"traces", rowTraces},
	{"mcp", rowMCP},
	{"fleet", rowFleet},
	{"cluster", rowCluster},
	{"connects", rowConnects},
	{"memory-resident", rowResident},
	{"memory-shapes", rowShapes},
	{"memory-definitions", rowDefinitions},
	{"memory-pod", rowPodMemory},
	{"memory-redis", rowRedisMemory},
	{"listing", rowListing},
	{"commands", rowCommands},
	{"pod-death", rowPodDeath},
	{"heartbeats", rowHeartbeats},
	{"exec", rowExec},
	{"sandbox", rowSandbox},
}

func rowNames() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// lab holds what the rows share: measurements that several of them need are made once.
type lab struct {
	*options
	lines  func(workload) ([]bench.Line, error) // of a workload, with those of the reference
	memory func() (idleFigures, error)          // of idle sessions
	redis  func() (*redisServer, error)         // for measurements in this process
}

// measureTargets measures every row of the target table, or the chosen ones, and prints them. It reports whether all
// were met.
func measureTargets(ctx context.Context, o *options, asJSON bool) (bool, error) {
	l := &lab{options: o}
	l.lines = oncePerWorkload(l.workloads(), func(w workload) ([]bench.Line, error) { return l.sideBySide(ctx, w) })
	l.memory = sync.OnceValues(func() (idleFigures, error) { return l.idleMemory(ctx) })
	stopRedis := func() {}
	l.redis = sync.OnceValues(func() (*redisServer, error) {
		s, err := startRedis(ctx)
		if err == nil {
			stopRedis = s.stop
		}
		return s, err
	})
	defer func() { stopRedis() }()
	var verdicts []verdict
	met, needsLines := true, false
	for _, r := range rows {
		if len(o.Only) > 0 && !slices.Contains(o.Only, r.name) {
			continue
		}
		needsLines = needsLines || strings.HasPrefix(r.name, "call-")
		o.Step("measuring %s", r.name)
		found, err := r.measure(ctx, l)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil { // print the other rows, which took minutes
			found = []verdict{{What: "could not be measured", Target: "-", Measured: "-", Detail: err.Error()}}
		}
		for i := range found {
			found[i].Row = r.name
			met = met && found[i].Met
		}
		verdicts = append(verdicts, found...)
	}
	o.Note("")
	var lines []bench.Line
	if needsLines {
		for _, w := range l.workloads() {
			more, _ := l.lines(w) // errors are in the verdicts of its rows
			lines = append(lines, more...)
		}
	}
	return met, o.report(asJSON, []string{"farhand", "reference"}, lines, verdicts)
}

// oncePerWorkload returns measure with its result cached for each workload.
func oncePerWorkload(
	list []workload, measure func(workload) ([]bench.Line, error),
) func(workload) ([]bench.Line, error) {
	once := make(map[string]func() ([]bench.Line, error))
	for _, w := range list {
		once[w.name] = sync.OnceValues(func() ([]bench.Line, error) { return measure(w) })
	}
	return func(w workload) ([]bench.Line, error) { return once[w.name]() }
}

// atLeast is the verdict on measured ≥ least × base.
func atLeast(what string, measured, base, least float64, unit, of string) verdict {
	return verdict{
		What: what, Target: fmt.Sprintf("≥ %.2g × %s", least, of), Met: measured >= least*base,
		Measured: fmt.Sprintf("%.2f × (%.0f against %.0f %s)", measured/base, measured, base, unit),
	}
}

// atMost is the verdict on measured ≤ most × base.
func atMost(what string, measured, base, most float64, unit, of string) verdict {
	return verdict{
		What: what, Target: fmt.Sprintf("≤ %.3g × %s", most, of), Met: measured <= most*base,
		Measured: fmt.Sprintf("%.2f × (%.0f against %.0f %s)", measured/base, measured, base, unit),
	}
}
