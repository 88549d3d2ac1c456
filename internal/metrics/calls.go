package metrics

import (
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// callBuckets are seconds. A call to a device on the same network takes a few milliseconds, one that asks a person
// minutes.
var callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// callWay is how a call came and went.
type callWay struct {
	endpoint agent.Endpoint
	route    agent.CallRoute
}

// wayCounters are the series of one way.
type wayCounters struct {
	outcomes tally
	duration *timer
}

// Calls counts calls.
type Calls struct {
	ways map[callWay]*wayCounters // never changes
}

var _ agent.Meter = (*Calls)(nil)

func endpoints() []agent.Endpoint {
	return []agent.Endpoint{agent.EndpointAPI, agent.EndpointV1, agent.EndpointChat, agent.EndpointMCP, other}
}

func callRoutes() []agent.CallRoute {
	return []agent.CallRoute{agent.RouteNone, agent.RouteLocalTool, agent.RouteLocal, agent.RouteRemote}
}

// callOutcomes are all outcomes that a call can have.
func callOutcomes() []string {
	all := []string{agent.OutcomeSucceeded, agent.OutcomeFailed, agent.OutcomeReplayed}
	return append(append(all, texts(registry.Codes())...), other)
}

func newCalls(s *Set) *Calls {
	endpoint, route := Label{"endpoint", texts(endpoints())}, Label{"route", texts(callRoutes())}
	c := &Calls{ways: make(map[callWay]*wayCounters)}
	s.counter("farhand_calls_total",
		"Calls that ended, on the pod that was asked, "+
			"by where they came in, the way to their tool, and how they ended.",
		source{[]Label{endpoint, route, {"outcome", callOutcomes()}}, func(emit emitFunc) {
			for way, w := range c.ways {
				w.outcomes.emit(emit, string(way.endpoint), string(way.route))
			}
		}})
	durations := s.histograms("farhand_call_duration_seconds",
		"How long calls took that their tools answered, from the request to the result.",
		[]Label{endpoint, route}, callBuckets)
	for _, e := range endpoints() {
		for _, r := range callRoutes() {
			c.ways[callWay{e, r}] = &wayCounters{newTally(callOutcomes()), newTimer(durations, string(e), string(r))}
		}
	}
	return c
}

// CallEnded implements agent.Meter.
func (c *Calls) CallEnded(end agent.CallEnd) {
	w := c.ways[callWay{end.Endpoint, end.Route}]
	if w == nil {
		w = c.ways[callWay{other, agent.RouteNone}]
	}
	w.outcomes.add(end.Outcome, 1)
	if end.Outcome == agent.OutcomeSucceeded || end.Outcome == agent.OutcomeFailed {
		w.duration.observe(end.Duration)
	}
}
