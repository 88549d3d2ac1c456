package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tally counts by the values of one label, which are a fixed set. It is safe for concurrent use.
type tally struct {
	counts map[string]*atomic.Int64 // never changes
}

// newTally returns a tally of values. They must include other if any further value may be counted.
func newTally(values []string) tally {
	t := tally{counts: make(map[string]*atomic.Int64, len(values))}
	for _, v := range values {
		t.counts[v] = new(atomic.Int64)
	}
	return t
}

func (t tally) add(value string, n int64) {
	c := t.counts[value]
	if c == nil {
		c = t.counts[other]
	}
	c.Add(n)
}

// emit exports what has been counted. before are the values of the labels before the tally's own.
func (t tally) emit(emit emitFunc, before ...string) {
	for value, c := range t.counts {
		if n := c.Load(); n > 0 {
			emit(float64(n), append(before[:len(before):len(before)], value)...)
		}
	}
}

// timer is one series of a histogram. There is none until the first value. It is safe for concurrent use.
type timer struct {
	vec    *prometheus.HistogramVec
	labels []string
	series atomic.Pointer[prometheus.Observer]
}

func newTimer(vec *prometheus.HistogramVec, labels ...string) *timer {
	return &timer{vec: vec, labels: labels}
}

func (t *timer) observe(took time.Duration) {
	o := t.series.Load()
	if o == nil {
		made := t.vec.WithLabelValues(t.labels...) // the same one for every goroutine that comes here
		o = &made
		t.series.Store(o)
	}
	(*o).Observe(took.Seconds())
}

// texts returns values of labels.
func texts[S ~string](values []S) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// scrapeTime is how long a value that was read for one metric is used for the others. All are read in one scrape.
const scrapeTime = 100 * time.Millisecond

// once returns a function that calls read at most once in scrapeTime, because read may look at every connection.
func once[T any](read func() T) func() T {
	if read == nil {
		return nil
	}
	var mu sync.Mutex
	var at time.Time
	var value T
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) > scrapeTime {
			value, at = read(), time.Now()
		}
		return value
	}
}
