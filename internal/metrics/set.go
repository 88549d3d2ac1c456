// Package metrics exports the counters of a pod's packages as metrics for Prometheus. Those packages do not import
// Prometheus. They count in atomic counters, which their Stats methods return and this package reads at each scrape.
// They report durations to a small interface of their own, called Meter or Activity, which this package implements.
//
// Every label has a fixed set of values, which is part of the metric's description. A value outside the set becomes
// "other". So the number of series has a bound (Metric.Bound), whatever devices and callers send. docs/operate.md
// states it.
//
// Start with set.go.
//
// A new metric is one entry in the file of the package that counts it: calls.go for agent and agent/chat, http.go for
// api, redisstore and its bus, pod.go for registry/routing and ws. Refusals by api, agent/access/auth and agent/chat
// are also in pod.go.
//
// A package that has no metrics yet needs a method Stats, a field of Pod (pod.go), a line in Set.Watch (set.go) that
// reads the field, and a line in monitoring.go of the root package that sets it.
package metrics

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// other replaces a label value that is not in the label's set.
const other = "other"

// Kind is the type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label is a label of a metric with all its possible values.
type Label struct {
	Name   string
	Values []string
}

// Metric describes a metric.
type Metric struct {
	Name    string
	Kind    Kind
	Help    string
	Labels  []Label
	Buckets []float64 // of a histogram
}

// Bound returns the maximum number of series of the metric on one pod.
func (m Metric) Bound() int {
	n := 1
	for _, l := range m.Labels {
		n *= len(l.Values)
	}
	if m.Kind == Histogram {
		n *= len(m.Buckets) + 3 // +Inf, _sum, _count
	}
	return n
}

func (m Metric) labelNames() []string {
	names := make([]string, len(m.Labels))
	for i, l := range m.Labels {
		names[i] = l.Name
	}
	return names
}

// Set is all metrics of one pod. Its fields may be used concurrently.
type Set struct {
	registry *prometheus.Registry
	metrics  []Metric

	Calls *Calls // implements agent.Meter
	HTTP  *HTTP  // implements api.Meter
	Redis *Redis // implements redisstore.Meter
	Turns *Turns // implements chat.Activity
}

// New returns the metrics of a pod. models are the names of the configured models, version is the program's version.
// The counters of the pod's parts are not exported before Watch.
func New(models []string, version string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	s.Calls = newCalls(s)
	s.HTTP = newHTTP(s)
	s.Redis = newRedis(s)
	s.Turns = newTurns(s, models)
	s.gauge("farhand_build_info",
		"The version of the program; the value is always 1.",
		source{[]Label{{"version", []string{version}}}, func(emit emitFunc) { emit(1, version) }})
	return s
}

// Watch exports the counters of a pod's parts. Call it once.
func (s *Set) Watch(p Pod) {
	s.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.routing(once(p.Routing))
	s.sockets(once(p.Sockets))
	s.refusals(once(p.API), p.Refusals, once(p.Turns))
	s.redisPools(once(p.RedisPools))
	s.bus(once(p.Bus))
	s.audit(once(p.Audit))
	s.policyFile(once(p.PolicyFile))
	s.hooks(p.Hooks)
	s.mcpServers(p.MCPServers)
	s.pools(p.Pools)
}

// Handler serves the metrics in the Prometheus format.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Metrics returns the descriptions of Farhand's own metrics, in order of name.
func (s *Set) Metrics() []Metric {
	all := slices.Clone(s.metrics)
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// emitFunc exports one value of a metric, with the values of its labels.
type emitFunc func(value float64, labels ...string)

// source is the source of a metric's values.
type source struct {
	labels []Label
	emit   func(emitFunc) // called at each scrape; nil: nothing is exported
}

// number returns a source with one number, computed from the result of read. A nil read exports nothing.
func number[T any](read func() T, of func(T) int64) source {
	if read == nil {
		return source{}
	}
	return source{emit: func(emit emitFunc) { emit(float64(of(read()))) }}
}

// share is the part of a number that belongs to one value of a label.
type share struct {
	value string
	n     int64
}

// shares returns a source with one number per value of a label, computed from the result of read. A nil read exports
// nothing. of must always name the same values.
func shares[T any](label string, read func() T, of func(T) []share) source {
	l := Label{Name: label}
	for _, s := range of(*new(T)) {
		l.Values = append(l.Values, s.value)
	}
	from := source{labels: []Label{l}}
	if read != nil {
		from.emit = func(emit emitFunc) {
			for _, s := range of(read()) {
				emit(float64(s.n), s.value)
			}
		}
	}
	return from
}

func (s *Set) gauge(name, help string, from source) {
	s.register(Metric{Name: name, Kind: Gauge, Help: help, Labels: from.labels}, prometheus.GaugeValue, from.emit)
}

func (s *Set) counter(name, help string, from source) {
	s.register(Metric{Name: name, Kind: Counter, Help: help, Labels: from.labels}, prometheus.CounterValue, from.emit)
}

// register adds a metric whose values are read at each scrape. A nil read exports nothing.
func (s *Set) register(m Metric, kind prometheus.ValueType, read func(emitFunc)) {
	s.metrics = append(s.metrics, m)
	if read != nil {
		desc := prometheus.NewDesc(m.Name, m.Help, m.labelNames(), nil)
		s.registry.MustRegister(&reader{desc: desc, kind: kind, values: read})
	}
}

// histograms registers a metric of durations, in seconds.
func (s *Set) histograms(name, help string, labels []Label, buckets []float64) *prometheus.HistogramVec {
	m := Metric{Name: name, Kind: Histogram, Help: help, Labels: labels, Buckets: buckets}
	s.metrics = append(s.metrics, m)
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	vec := prometheus.NewHistogramVec(opts, m.labelNames())
	s.registry.MustRegister(vec)
	return vec
}

// reader is a metric that is read at each scrape.
type reader struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(emitFunc)
}

// Describe implements prometheus.Collector.
func (r *reader) Describe(c chan<- *prometheus.Desc) { c <- r.desc }

// Collect implements prometheus.Collector.
func (r *reader) Collect(c chan<- prometheus.Metric) {
	r.values(func(value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(r.desc, r.kind, value, labels...)
	})
}

// tally counts by the values of one label. The set of values is fixed. It is safe for concurrent use.
type tally struct {
	counts map[string]*atomic.Int64 // never changes
}

// newTally returns a tally of values. They must include other if add may get any further value.
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

// emit exports the counts. before are the values of the labels that precede the tally's own.
func (t tally) emit(emit emitFunc, before ...string) {
	for value, c := range t.counts {
		if n := c.Load(); n > 0 {
			emit(float64(n), append(before[:len(before):len(before)], value)...)
		}
	}
}

// timer is one series of a histogram. The series is created with its first value. It is safe for concurrent use.
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
		made := t.vec.WithLabelValues(t.labels...) // every goroutine gets the same one
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

// scrapeTime is how long a value read for one metric is reused for the others, because one scrape reads them all.
const scrapeTime = 100 * time.Millisecond

// once returns a function that calls read at most once per scrapeTime, because read may visit every connection.
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
