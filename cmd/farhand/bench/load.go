// Package bench measures running pods: it connects devices, calls their tools over HTTP, checks every answer, and
// prints rates and durations for every route and number of callers. `farhand bench` is Run.
//
// Generator, pods and Redis often share a machine, so the generator is lean: its devices are bare TCP connections, and
// its callers write requests that were built once. Sides are compared with the same generator, in the same run, in
// alternation (A B A B), by their medians. So other load on the machine affects all sides.
//
// cmd/farhand-bench, for developers of Farhand, builds on it. It imports no other package of Farhand. Start reading at
// Run.
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

// Figures are the measurements of one run of callers.
type Figures struct {
	Route     string           `json:"route,omitempty"`
	Callers   int              `json:"callers"`
	Calls     int64            `json:"calls"`
	PerSecond float64          `json:"calls_per_second"`
	P50       time.Duration    `json:"p50_ns"`
	P90       time.Duration    `json:"p90_ns"`
	P99       time.Duration    `json:"p99_ns"`
	Max       time.Duration    `json:"max_ns"`           // of all calls, including failed and late ones
	Errors    map[string]int64 `json:"errors,omitempty"` // by code, including late ones
	Usage     []Usage          `json:"usage,omitempty"`  // of the processes watched
	Found     *Found           `json:"found,omitempty"`  // nil: the pods do not report it
	Redis     RedisUse         `json:"redis,omitempty"`  // while all calls ran; nil: no Redis was probed
	AllCalls  int64            `json:"all_calls"`        // including warm-up, late and failed calls
}

// Failed returns how many calls failed.
func (f Figures) Failed() (n int64) {
	for _, count := range f.Errors {
		n += count
	}
	return n
}

// Caller makes one call after the other. Call returns an empty code if the answer was correct.
type Caller interface {
	Call() (code string)
	Close()
}

// tally has the counters of one caller. The padding keeps the counters of two callers out of one cache line.
type tally struct {
	histogram Histogram
	done      atomic.Int64
	all       int64 // calls, including late and failed ones
	errors    map[string]int64
	_         [64]byte
}

// errNothing is returned if no call succeeded: then there is nothing to compare.
var errNothing = errors.New("no call succeeded")

// Drive runs callers, and returns their measurements. what names them in errors. Calls count after the options' Warmup.
//
// A call counts if it ends within the measured time, so calls in flight at either end do not bias rates. Drive still
// waits for the calls in flight at the end: a failure that takes longer than the run, such as a lost call, must show. A
// run without a success continues until the first one, for at most the options' Grace, because a busy machine may not
// finish one call in a short run. If no call succeeds, Drive returns an error.
func (o *Options) Drive(
	ctx context.Context, what string, callers int, open func(i int) (Caller, error),
) (Figures, error) {
	list := make([]Caller, 0, callers)
	defer func() {
		for _, c := range list {
			c.Close()
		}
	}()
	for i := range callers {
		c, err := open(i)
		if err != nil {
			return Figures{}, fmt.Errorf("caller %d: %w", i, err)
		}
		list = append(list, c)
	}
	tallies := make([]tally, callers)
	from := time.Now().Add(o.Warmup)
	span := window{from: from, until: from.Add(o.Duration)}
	span.last = span.until.Add(o.Grace)
	var work sync.WaitGroup
	for i := range list {
		tallies[i].errors = make(map[string]int64)
		work.Go(func() { tallies[i].callUntilEnd(ctx, list[i], &span) })
	}
	stopped := make(chan struct{})
	go func() { work.Wait(); close(stopped) }()
	o.showProgress(fmt.Sprintf("%s, %d callers", what, callers), tallies, from, stopped)
	if err := ctx.Err(); err != nil {
		return Figures{}, err
	}
	f := collect(o.Duration, tallies)
	if f.Calls == 0 {
		return f, fmt.Errorf("%s: %w: %v", what, errNothing, f.Errors)
	}
	return f, nil
}

// window is the time in which the calls of a run count.
type window struct {
	from, until time.Time
	last        time.Time // limit of a run without a success
	succeeded   atomic.Bool
}

// open reports whether a call that begins at this time is still part of the run.
func (w *window) open(began time.Time) bool {
	return began.Before(w.until) || !w.succeeded.Load() && began.Before(w.last)
}

// holds reports whether a success at this time counts: within the measured time, or as the first one after it.
func (w *window) holds(ended time.Time) bool {
	first := w.succeeded.CompareAndSwap(false, true)
	return !ended.After(w.until) || first && !ended.After(w.last)
}

// callUntilEnd makes one call after the other until the run is over.
func (t *tally) callUntilEnd(ctx context.Context, c Caller, span *window) {
	for began := time.Now(); ctx.Err() == nil && span.open(began); {
		code := c.Call()
		t.all++
		now := time.Now()
		if now.After(span.from) {
			t.count(code, now.Sub(began), code == "" && span.holds(now))
		}
		if code != "" {
			time.Sleep(time.Millisecond) // else rejections would be all that is measured
			now = time.Now()
		}
		began = now
	}
}

// count records a call that has ended, within the measured time or after it.
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

// showProgress shows the progress until the callers have stopped.
func (o *Options) showProgress(what string, tallies []tally, from time.Time, stopped <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
		}
		var calls int64
		for i := range tallies {
			calls += tallies[i].done.Load()
		}
		if seconds := time.Since(from).Seconds(); seconds > 0 {
			o.Note("%s: %.1fs, %.0f calls/s", what, seconds, float64(calls)/seconds)
		}
	}
}

func collect(length time.Duration, tallies []tally) Figures {
	f := Figures{Callers: len(tallies), Errors: make(map[string]int64)}
	all := &Histogram{}
	for i := range tallies {
		all.merge(&tallies[i].histogram)
		f.AllCalls += tallies[i].all
		for code, n := range tallies[i].errors {
			f.Errors[code] += n
		}
	}
	f.Calls, f.PerSecond = all.total, float64(all.total)/length.Seconds()
	f.P50, f.P90, f.P99, f.Max = all.Quantile(.5), all.Quantile(.9), all.Quantile(.99), all.Max
	return f
}

// MedianFigures returns the median of each figure of repeated runs. Maxima are over all runs; numbers of calls, errors
// and Redis commands are summed.
func MedianFigures(runs []Figures) Figures {
	f := runs[0]
	f.Errors, f.Usage, f.Found = make(map[string]int64), medianUsage(runs), medianFound(runs)
	f.Calls, f.AllCalls, f.Max = 0, 0, 0
	if f.Redis != nil {
		f.Redis = make(RedisUse)
	}
	for _, r := range runs {
		f.Calls, f.AllCalls = f.Calls+r.Calls, f.AllCalls+r.AllCalls
		f.Redis.add(r.Redis)
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

// MedianOf returns the median of a figure. For an even number of runs it is the upper of the two in the middle.
func MedianOf[R any, T int64 | float64 | time.Duration](runs []R, figure func(R) T) T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = figure(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
