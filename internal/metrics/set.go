// Package metrics exports the counters of a pod's packages as metrics for Prometheus. Those packages do not import
// Prometheus. They count in atomic counters, which their Stats methods return and this package reads at each scrape.
// They report durations to a small interface of their own, called Meter or Activity, which this package implements.
//
// Every label has a fixed set of values. A value outside the set becomes "other". So the number of series has a bound
// (Metric.Bound), which docs/operate.md states.
//
// A new metric is one entry: of a Meter or Activity in meters.go, of the Stats of a package in pod.go. A package that
// has no metrics yet needs a method Stats, a field of Pod, a line in Set.Watch, and a line in monitoring.go of the root
// package that sets the field.
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

	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/memlimit"
	"github.com/farhand/farhand/internal/share"
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

// Label is a label of a metric with its possible values.
type Label struct {
	Name   string
	Values []string
	More   int // further values, chosen at run time, that it can have at the same time
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
		n *= len(l.Values) + l.More
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
	summary  *summary
	tenants  *tenants

	Calls *Calls // implements agent.Meter
	HTTP  *HTTP  // implements api.Meter
	Redis *Redis // implements redisstore.Meter
	Turns *Turns // implements chat.Activity
}

// New returns the metrics of a pod. models are the names of the configured models, version is the program's version.
// The counters of the pod's parts are not exported before Watch.
func New(models []string, version string) *Set {
	s := &Set{registry: prometheus.NewRegistry(), summary: newSummary(), tenants: newTenants()}
	s.Calls = newCalls(s)
	s.HTTP = newHTTP(s)
	s.Redis = newRedis(s)
	s.Turns = newTurns(s, models)
	watch(s, func() string { return version }, buildInfo)
	watch(s, s.tenants.read, tenantCalls)
	return s
}

func buildInfo(version string) []current {
	return []current{gauge("farhand_build_info",
		"The program's version; the value is always 1.", by("version", part{version, 1}))}
}

// Watch exports the counters of a pod's parts. Call it once.
func (s *Set) Watch(p Pod) {
	s.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	watch(s, p.Routing, sessions, calls, places, recorder, lease)
	watch(s, p.Sockets, sockets, traffic)
	watch(s, p.API, refusals)
	watch(s, p.Refusals, authRefusals)
	watch(s, p.PreviousTokens, previousTokens)
	watch(s, p.Turns, turns)
	watch(s, p.RedisPools, redisPools)
	watch(s, p.Unreadable, unreadable)
	watch(s, p.Bus, busMessages)
	watch(s, p.Audit, auditLog)
	watch(s, p.PolicyFile, policyFile)
	watch(s, p.Budgets, budgets)
	watch(s, p.Prices, modelPrices)
	watch(s, p.TLS, tlsCertificate)
	watch(s, p.Tenants, tenantConnections)
	watch(s, p.Approvals, approvals)
	watch(s, p.Wakes, wakes)
	watch(s, p.Groups, groups)
	watch(s, p.Containers, containers)
	watch(s, p.Browsers, browsers)
	watch(s, p.Disks, disks)
	watch(s, memlimit.Bytes, memory)
	watch(s, p.Drained, drain)
	watch(s, p.Traces, traces)
	watch(s, func() []hooks.Stats { return readAll(p.Hooks) }, httpHooks)
	watch(s, p.MCPServers, mcpServers)
	watch(s, func() []map[string]share.Stats { return readAll(p.Pools) }, pools)
}

func readAll[T any](reads []func() T) (all []T) {
	for _, read := range reads {
		all = append(all, read())
	}
	return all
}

// Handler serves the metrics in the Prometheus format.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// Metrics returns the descriptions of Farhand's own metrics, in order of name.
func (s *Set) Metrics() []Metric {
	all := slices.Clone(s.metrics)
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// current is a metric with its values at the moment.
type current struct {
	Metric
	series []series
}

// series is one value of a metric, with the values of its labels.
type series struct {
	n      float64
	labels []string
}

func gauge(name, help string, c current) current {
	c.Name, c.Kind, c.Help = name, Gauge, help
	return c
}

func counter(name, help string, c current) current {
	c.Name, c.Kind, c.Help = name, Counter, help
	return c
}

func one(n int64) current { return labeled([]series{{n: float64(n)}}) }

func labeled(all []series, labels ...Label) current { return current{Metric{Labels: labels}, all} }

// part is the part of a number that belongs to one value of a label.
type part struct {
	value string
	n     int64
}

// by is a number in parts. A metric always has the same parts.
func by(label string, parts ...part) current {
	var names []string
	var all []series
	for _, p := range parts {
		names, all = append(names, p.value), append(all, series{float64(p.n), []string{p.value}})
	}
	return labeled(all, Label{Name: label, Values: names})
}

// counted is a number in parts, some of which may be missing. values are those of the label.
func counted[K ~string](label string, values []string, parts map[K]int64) current {
	var all []series
	for value, n := range parts {
		all = append(all, series{float64(n), []string{string(value)}})
	}
	return labeled(all, Label{Name: label, Values: values})
}

// watch exports the metrics that of makes of counters. They are read now, to describe the metrics, and at each scrape.
// A nil read exports nothing.
func watch[T any](s *Set, read func() T, of ...func(T) []current) {
	all := func(counters T) (list []current) {
		for _, metrics := range of {
			list = append(list, metrics(counters)...)
		}
		return list
	}
	var now T
	r := &reader{descriptions: make(map[string]*prometheus.Desc)}
	if read != nil {
		now = read()
		cached := once(read)
		r.read = func() []current { return all(cached()) }
		defer s.registry.MustRegister(r)
	}
	for _, m := range all(now) {
		s.metrics = append(s.metrics, m.Metric)
		r.descriptions[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.labelNames(), nil)
	}
}

// counters registers a metric that counts events itself.
func (s *Set) counters(name, help string, labels []Label) *prometheus.CounterVec {
	m := Metric{Name: name, Kind: Counter, Help: help, Labels: labels}
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, m.labelNames())
	s.metrics = append(s.metrics, m)
	s.registry.MustRegister(vec)
	return vec
}

// histograms registers a metric of durations, in seconds.
func (s *Set) histograms(name, help string, labels []Label, buckets []float64) *prometheus.HistogramVec {
	m := Metric{Name: name, Kind: Histogram, Help: help, Labels: labels, Buckets: buckets}
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	vec := prometheus.NewHistogramVec(opts, m.labelNames())
	s.metrics = append(s.metrics, m)
	s.registry.MustRegister(vec)
	return vec
}

type reader struct {
	descriptions map[string]*prometheus.Desc // by name
	read         func() []current
}

func (r *reader) Describe(c chan<- *prometheus.Desc) {
	for _, d := range r.descriptions {
		c <- d
	}
}

func (r *reader) Collect(c chan<- prometheus.Metric) {
	for _, m := range r.read() {
		kind := prometheus.GaugeValue
		if m.Kind == Counter {
			kind = prometheus.CounterValue
		}
		for _, s := range m.series {
			c <- prometheus.MustNewConstMetric(r.descriptions[m.Name], kind, s.n, s.labels...)
		}
	}
}

// lazy is a series that is created with its first value. It is safe for concurrent use.
type lazy[T any] struct {
	create func() T // always returns the same one
	made   atomic.Pointer[T]
}

func (l *lazy[T]) get() T {
	made := l.made.Load()
	if made == nil {
		made = new(l.create())
		l.made.Store(made)
	}
	return *made
}

// tally counts by the values of one label, a fixed set. It is safe for concurrent use.
type tally map[string]*lazy[prometheus.Counter]

// newTally returns a tally of values of the last label of vec. before are the values of the other labels. values must
// include other if add may get any further value.
func newTally(vec *prometheus.CounterVec, values []string, before ...string) tally {
	t := make(tally, len(values))
	for _, v := range values {
		labels := append(slices.Clone(before), v)
		t[v] = &lazy[prometheus.Counter]{create: func() prometheus.Counter { return vec.WithLabelValues(labels...) }}
	}
	return t
}

func (t tally) add(value string, n int64) {
	if n <= 0 { // a counter panics on a negative number
		return
	}
	c := t[value]
	if c == nil {
		c = t[other]
	}
	c.get().Add(float64(n))
}

type timer = lazy[prometheus.Observer]

func newTimer(vec *prometheus.HistogramVec, labels ...string) *timer {
	return &timer{create: func() prometheus.Observer { return vec.WithLabelValues(labels...) }}
}

// observe adds a duration. With the id of a recorded trace it becomes the exemplar of its bucket, which scrapers of the
// OpenMetrics format read.
func observe(t *timer, took time.Duration, traceID string) {
	o := t.get()
	if with, ok := o.(prometheus.ExemplarObserver); ok && traceID != "" {
		with.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	o.Observe(took.Seconds())
}

func texts[S ~string](values []S) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// scrapeTime is how long counters that were read are reused, for further scrapes.
const scrapeTime = 100 * time.Millisecond

// once returns a function that calls read at most once per scrapeTime, because read may visit every connection.
func once[T any](read func() T) func() T {
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

// Table describes all metrics of a pod with one model, one HTTP hook and one MCP server, in order of name: Farhand's
// own, as Set.Metrics does. The docs, dashboards and rules take names, labels and values from it.
func Table() []Metric { return described().Metrics() }

// described returns the metrics of a pod that does not run.
func described() *Set {
	s := New([]string{"model"}, "version")
	s.Watch(Pod{
		Hooks:      []func() hooks.Stats{func() hooks.Stats { return hooks.Stats{} }},
		MCPServers: func() []upstream.Status { return []upstream.Status{{}} },
	})
	return s
}

// Runtime returns the names of the metrics of the Go runtime and of the process.
func Runtime() []string {
	var names []string
	families, _ := described().registry.Gather() // without values of a pod, nothing can fail
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "farhand_") {
			names = append(names, f.GetName())
		}
	}
	return names
}
