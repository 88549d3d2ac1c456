package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Figures are what one run of callers measured.
type Figures struct {
	Route     string           `json:"route,omitempty"`
	Callers   int              `json:"callers"`
	Calls     int64            `json:"calls"`
	PerSecond float64          `json:"calls_per_second"`
	P50       time.Duration    `json:"p50_ns"`
	P90       time.Duration    `json:"p90_ns"`
	P99       time.Duration    `json:"p99_ns"`
	Max       time.Duration    `json:"max_ns"`           // of all calls, also of failed and of late ones
	Errors    map[string]int64 `json:"errors,omitempty"` // by code, however late they came
	Usage     []Usage          `json:"usage,omitempty"`  // of the processes watched meanwhile
}

// Failed returns how many calls went wrong.
func (f Figures) Failed() (n int64) {
	for _, count := range f.Errors {
		n += count
	}
	return n
}

// Caller makes one call after the other. Call returns an empty code when the answer was the right one.
type Caller interface {
	Call() (code string)
	Close()
}

// plan is one run: callers that call for a while, of which the first part only warms up.
type plan struct {
	callers  int
	warmup   time.Duration
	duration time.Duration
	grace    time.Duration                            // how much longer a run without a success may take
	progress func(elapsed time.Duration, calls int64) // optional, called a few times a second
}

// tally is what one caller counted. The padding keeps the counters of two callers out of one cache line.
type tally struct {
	histogram Histogram
	done      atomic.Int64
	errors    map[string]int64
	_         [64]byte
}

// drive runs the plan. A call counts when it ends within the measured time, so that rates are not biased by what is
// under way at either end. What is under way at the end is waited for all the same: a failure that takes longer than
// the run, as a call that is lost does, must show. A run without a single success goes on until the first, for as long
// as the plan's grace: a busy machine may not finish one call in a short run.
func drive(ctx context.Context, p plan, open func(i int) (Caller, error)) (Figures, error) {
	callers := make([]Caller, 0, p.callers)
	defer func() {
		for _, c := range callers {
			c.Close()
		}
	}()
	for i := range p.callers {
		c, err := open(i)
		if err != nil {
			return Figures{}, fmt.Errorf("caller %d: %w", i, err)
		}
		callers = append(callers, c)
	}
	tallies := make([]tally, p.callers)
	from := time.Now().Add(p.warmup)
	span := window{from: from, until: from.Add(p.duration)}
	span.last = span.until.Add(p.grace)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for i := range callers {
		tallies[i].errors = make(map[string]int64)
		work.Go(func() { tallies[i].run(ctx, callers[i], &span) })
	}
	stopped := make(chan struct{})
	go func() { work.Wait(); close(stopped) }()
	watch(p, tallies, from, stopped)
	if err := ctx.Err(); err != nil {
		return Figures{}, err
	}
	return collect(p, tallies), nil
}

// window is when the calls of a run count.
type window struct {
	from, until time.Time
	last        time.Time // until then a run goes on that has no success yet
	succeeded   atomic.Bool
}

// open reports whether a call that begins at a time is still part of the run.
func (w *window) open(began time.Time) bool {
	return began.Before(w.until) || !w.succeeded.Load() && began.Before(w.last)
}

// holds reports whether a success at a time counts: within the measured time, or as the first after it.
func (w *window) holds(ended time.Time) bool {
	first := w.succeeded.CompareAndSwap(false, true)
	return !ended.After(w.until) || first && !ended.After(w.last)
}

func (t *tally) run(ctx context.Context, c Caller, span *window) {
	for began := time.Now(); ctx.Err() == nil && span.open(began); {
		code := c.Call()
		now := time.Now()
		if now.After(span.from) {
			t.count(code, now.Sub(began), code == "" && span.holds(now))
		}
		if code != "" {
			time.Sleep(time.Millisecond) // a pod that refuses at once must not be all that is measured
			now = time.Now()
		}
		began = now
	}
}

// count takes note of a call that has ended, within the measured time or after it.
func (t *tally) count(code string, took time.Duration, inTime bool) {
	t.histogram.Max = max(t.histogram.Max, took)
	switch {
	case code != "":
		t.errors[code]++
	case inTime:
		t.histogram.Record(took)
		t.done.Add(1)
	}
}

// watch reports progress until the callers have stopped.
func watch(p plan, tallies []tally, from time.Time, stopped <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
		}
		if p.progress == nil {
			continue
		}
		var calls int64
		for i := range tallies {
			calls += tallies[i].done.Load()
		}
		p.progress(time.Since(from), calls)
	}
}

func collect(p plan, tallies []tally) Figures {
	f := Figures{Callers: p.callers, Errors: make(map[string]int64)}
	all := &Histogram{}
	for i := range tallies {
		all.merge(&tallies[i].histogram)
		for code, n := range tallies[i].errors {
			f.Errors[code] += n
		}
	}
	f.Calls, f.PerSecond = all.total, float64(all.total)/p.duration.Seconds()
	f.P50, f.P90, f.P99, f.Max = all.Quantile(.5), all.Quantile(.9), all.Quantile(.99), all.Max
	return f
}

// errNothing is returned when not a single call succeeded: there is nothing to compare then.
var errNothing = errors.New("not one call succeeded")

func (f Figures) check(what string) error {
	if f.Calls > 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: %v", what, errNothing, f.Errors)
}

// MedianFigures takes the median of each figure of several runs of one plan; maxima and errors add up.
func MedianFigures(runs []Figures) Figures {
	f := runs[0]
	f.Errors, f.Usage = make(map[string]int64), medianUsage(runs)
	f.Calls, f.Max = 0, 0
	for _, r := range runs {
		f.Calls += r.Calls
		f.Max = max(f.Max, r.Max)
		for code, n := range r.Errors {
			f.Errors[code] += n
		}
	}
	f.PerSecond = MedianOf(runs, func(r Figures) float64 { return r.PerSecond })
	f.P50 = MedianOf(runs, func(r Figures) time.Duration { return r.P50 })
	f.P90 = MedianOf(runs, func(r Figures) time.Duration { return r.P90 })
	f.P99 = MedianOf(runs, func(r Figures) time.Duration { return r.P99 })
	return f
}

// MedianOf returns the median of a figure; of an even number the upper of the two in the middle.
func MedianOf[R any, T int64 | float64 | time.Duration](runs []R, figure func(R) T) T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = figure(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
