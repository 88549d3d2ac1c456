package routing_test

import (
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The flags of TestSimulation: go test ./registry/routing -run TestSimulation -args -seeds 1000000 -seed 1
var (
	simSeeds = flag.Int("seeds", 0,
		"how many seeds the simulator runs; 0: as many as there is time for in a normal run")
	simSeed  = flag.Uint64("seed", 1, "the first of them")
	simSteps = flag.String("steps", "",
		"the numbers of the steps of the plan that are done, comma-separated; all if empty")
	simTrace = flag.Bool("trace", false, "print all that happens")
)

const (
	simWorkers = 2
	simAtLeast = 50 // seeds, however slow the machine is
)

// TestSimulation runs a fleet through the faults of one seed after the other. A seed that breaks a rule is run again
// with fewer and fewer steps, and told.
func TestSimulation(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a run is short, and leaves all its memory behind
	began := time.Now()
	var next, requests, answered atomic.Int64
	var mu sync.Mutex
	var failed []uint64
	var workers sync.WaitGroup
	for range simWorkers {
		workers.Go(func() {
			for {
				n := next.Add(1) - 1
				if *simSeeds > 0 && n >= int64(*simSeeds) ||
					*simSeeds == 0 && n >= simAtLeast && time.Since(began) > simBudget {
					return
				}
				seed := *simSeed + uint64(n)
				r := simulate(t, seed, chosen(newPlan(seed)), false)
				requests.Add(int64(r.requests))
				answered.Add(int64(r.answered))
				if len(r.violations) == 0 {
					continue
				}
				mu.Lock()
				if failed = append(failed, seed); len(failed) == 1 {
					t.Logf("seed %d breaks a rule, the first after %d seeds and %v", seed, n+1,
						time.Since(began).Round(time.Millisecond))
				}
				full := len(failed) >= 5
				mu.Unlock()
				if full {
					return
				}
			}
		})
	}
	workers.Wait()
	slices.Sort(failed)
	for _, seed := range failed {
		report(t, seed)
	}
	seeds := max(0, next.Load()-simWorkers)
	t.Logf("%d seeds from %d on in %v: %d requests, %d answered", seeds, *simSeed,
		time.Since(began).Round(time.Millisecond), requests.Load(), answered.Load())
	if *simSeeds == 0 && answered.Load()*2 < requests.Load() {
		t.Errorf("of %d requests only %d were answered: faults hide what is to be seen", requests.Load(),
			answered.Load())
	}
}

// chosen returns the steps that -steps names.
func chosen(plan []step) []step {
	if *simSteps == "" {
		return plan
	}
	names := strings.Split(*simSteps, ",")
	return slices.DeleteFunc(plan, func(s step) bool { return !slices.Contains(names, strconv.Itoa(s.number)) })
}

// report tells what a seed has broken, and with how few steps.
func report(t *testing.T, seed uint64) {
	t.Helper()
	plan := chosen(newPlan(seed))
	r := simulate(t, seed, plan, false)
	if len(r.violations) == 0 {
		t.Errorf("seed %d broke a rule, and does not when it is run again: something depends on the scheduler", seed)
		return
	}
	rule := r.violations[0].rule
	plan = shrink(plan, func(less []step) bool {
		return slices.ContainsFunc(simulate(t, seed, less, false).violations,
			func(v violation) bool { return v.rule == rule })
	})
	r = simulate(t, seed, plan, true)
	numbers := make([]string, len(plan))
	for i, s := range plan {
		numbers[i] = strconv.Itoa(s.number)
	}
	var text strings.Builder
	for _, v := range r.violations {
		fmt.Fprintf(&text, "\n%s %s: %s", v.rule, v.call, v.text)
	}
	t.Errorf("seed %d breaks the rule %q; again: "+
		"go test ./registry/routing -run 'TestSimulation$' -args -seeds 1 -seed %d -steps %s\n%s%s",
		seed, rule, seed, strings.Join(numbers, ","), describe(plan), text.String())
	if *simTrace {
		t.Logf("%s", strings.Join(r.trace, "\n"))
	}
}

// shrink returns few steps of a plan for which fails still holds: it leaves out halves, quarters and so on, down to one
// step.
func shrink(plan []step, fails func([]step) bool) []step {
	for size := (len(plan) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(plan); {
			less := slices.Delete(slices.Clone(plan), at, min(at+size, len(plan)))
			if fails(less) {
				plan = less
			} else {
				at += size
			}
		}
	}
	return plan
}

// TestSimulationReplays runs seeds twice: all that happens, happens at the same instant in the same way.
func TestSimulationReplays(t *testing.T) {
	for seed := range uint64(24) {
		run := func() []string {
			trace := simulate(t, seed, newPlan(seed), true).trace
			slices.Sort(trace) // of one instant the order is not known
			return trace
		}
		first, second := run(), run()
		for i := range max(len(first), len(second)) {
			if i >= len(first) || i >= len(second) || first[i] != second[i] {
				t.Errorf("seed %d: line %d of %d and %d:\n%s\n%s", seed, i, len(first), len(second), at(first, i),
					at(second, i))
				break
			}
		}
	}
}

func at(lines []string, i int) string {
	return strings.Join(lines[max(0, min(i-14, len(lines))):min(i+3, len(lines))], "\n")
}
