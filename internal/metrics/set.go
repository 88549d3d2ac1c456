package metrics

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// other is the value of a label whose own value is not in its set.
const other = "other"

// Kind is what a metric is.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label is a label of a metric with all values that it can have.
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

// Bound returns how many series the metric can have at most on one pod.
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

// Set is all metrics of one pod. What it gives to rooms may be used concurrently.
type Set struct {
	registry *prometheus.Registry
	metrics  []Metric

	Calls *Calls // implements agent.Meter
	HTTP  *HTTP  // implements api.Meter
	Redis *Redis // implements redisstore.Meter
	Turns *Turns // implements chat.Activity
}

// New returns the metrics of a pod. models are the names of the configured models, version is the program's. Pod is set
// once its rooms have been built; until then what they count is not exported.
func New(models []string, version string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	s.Calls = newCalls(s)
	s.HTTP = newHTTP(s)
	s.Redis = newRedis(s)
	s.Turns = newTurns(s, models)
	s.gauge("farhand_build_info",
		"The version of the program; the value is always 1.", []Label{{"version", []string{version}}},
		func(emit emitFunc) { emit(1, version) })
	return s
}

// Watch exports what the rooms of a pod count. It is called once.
func (s *Set) Watch(p Pod) {
	s.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.routing(once(p.Routing))
	s.sockets(once(p.Sockets))
	s.refusals(once(p.API), p.Refusals, once(p.Turns))
	s.redisPools(once(p.RedisPools))
	s.bus(once(p.Bus))
}

// Handler serves the metrics in the format of Prometheus.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Metrics returns the descriptions of Farhand's own metrics, in order of name.
func (s *Set) Metrics() []Metric {
	all := slices.Clone(s.metrics)
	slices.SortFunc(all, func(a, b Metric) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// emitFunc exports one value of a metric, with the values of its labels.
type emitFunc func(value float64, labels ...string)

func (s *Set) gauge(name, help string, labels []Label, read func(emitFunc)) {
	s.read(Metric{Name: name, Kind: Gauge, Help: help, Labels: labels}, prometheus.GaugeValue, read)
}

func (s *Set) counter(name, help string, labels []Label, read func(emitFunc)) {
	s.read(Metric{Name: name, Kind: Counter, Help: help, Labels: labels}, prometheus.CounterValue, read)
}

// read registers a metric whose values are read when somebody scrapes. A nil read exports nothing.
func (s *Set) read(m Metric, kind prometheus.ValueType, read func(emitFunc)) {
	s.metrics = append(s.metrics, m)
	if read != nil {
		desc := prometheus.NewDesc(m.Name, m.Help, m.labelNames(), nil)
		s.registry.MustRegister(&reader{desc: desc, kind: kind, values: read})
	}
}

// histograms registers a metric of how long things take, in seconds.
func (s *Set) histograms(name, help string, labels []Label, buckets []float64) *prometheus.HistogramVec {
	m := Metric{Name: name, Kind: Histogram, Help: help, Labels: labels, Buckets: buckets}
	s.metrics = append(s.metrics, m)
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	vec := prometheus.NewHistogramVec(opts, m.labelNames())
	s.registry.MustRegister(vec)
	return vec
}

// reader is a metric that is read when somebody scrapes.
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
