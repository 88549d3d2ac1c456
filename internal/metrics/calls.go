package metrics

import (
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat"
	parts "github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// callBuckets are in seconds. A call to a device on the same network takes a few milliseconds; a call that asks a
// person takes minutes.
var callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// callWay is the endpoint and the route of a call.
type callWay struct {
	endpoint agent.Endpoint
	route    agent.CallRoute
}

// wayCounters are the series of one callWay.
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

// turnBuckets are in seconds.
var turnBuckets = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Turns counts turns of conversations.
type Turns struct {
	outcomes  map[string]tally  // by channel; never changes
	durations map[string]*timer // by channel; never changes
	calls     tally             // by channel
	input     tally             // by model
	output    tally             // by model
}

var _ chat.Activity = (*Turns)(nil)

func newTurns(s *Set, models []string) *Turns {
	channels := []string{chat.ChannelChat, chat.ChannelCompletion}
	channel := Label{"channel", channels}
	outcomes := texts([]chat.Outcome{chat.OutcomeDone, chat.OutcomeAborted, chat.OutcomeError, other})
	models = append(append([]string(nil), models...), other)
	t := &Turns{
		outcomes: make(map[string]tally), durations: make(map[string]*timer), calls: newTally(append(channels, other)),
		input: newTally(models), output: newTally(models),
	}
	s.counter("farhand_turns_total", "Turns of conversations that ended, by where they came in and how they ended.",
		source{[]Label{channel, {"outcome", outcomes}}, func(emit emitFunc) {
			for channel, tally := range t.outcomes {
				tally.emit(emit, channel)
			}
		}})
	durations := s.histograms("farhand_turn_duration_seconds", "How long turns took, tools included.",
		[]Label{channel}, turnBuckets)
	s.counter("farhand_turn_calls_total",
		"Tool calls that models asked for.",
		source{[]Label{{"channel", append(channels, other)}}, func(emit emitFunc) { t.calls.emit(emit) }})
	s.counter("farhand_model_tokens_total",
		"Tokens that models read (input) and wrote (output), as their providers count them.",
		source{[]Label{{"direction", []string{"input", "output"}}, {"model", models}}, func(emit emitFunc) {
			t.input.emit(emit, "input")
			t.output.emit(emit, "output")
		}})
	for _, c := range channels {
		t.outcomes[c], t.durations[c] = newTally(outcomes), newTimer(durations, c)
	}
	return t
}

// TurnStarted implements chat.Activity.
func (t *Turns) TurnStarted(chat.TurnInfo) {}

// TurnFinished implements chat.Activity.
func (t *Turns) TurnFinished(info chat.TurnInfo, end chat.TurnEnd) {
	if outcomes, ok := t.outcomes[info.Channel]; ok {
		outcomes.add(string(end.Outcome), 1)
		t.durations[info.Channel].observe(end.Duration)
	}
	t.calls.add(info.Channel, int64(end.Calls))
	t.input.add(info.Model, int64(end.Usage.Input))
	t.output.add(info.Model, int64(end.Usage.Output))
}

// poolNames are the names of all pools that a pod may have.
var poolNames = []string{
	"answer_bytes", "argument_bytes", "body_bytes", "browsers", "catching_up", "checked_answer_bytes",
	"checked_answers", "checking_schemas", "commands", "compiling_schemas", "decoding", "decoding_large", "downloads",
	"errands", "exports", "hook_bytes", "hook_messages", "hook_questions", "idle_connections", "large_argument_bytes",
	"large_checked_answer_bytes", "late_answers", "mcp_calls", "message_bytes", "offered_bytes", "opening", "parsing",
	"reading", "registering", "requests", "returning_calls", "running_calls", "sockets", "streams", "tasks",
	"turn_bytes", "turns", "unsent_bytes", "uploads", "validating", "validating_answers", "waiting_requests",
}

// pools exports the usage of the pools that tenants share.
func (s *Set) pools(reads []func() map[string]parts.Stats) {
	read := once(func() map[string]parts.Stats {
		all := make(map[string]parts.Stats)
		for _, read := range reads {
			for name, stats := range read() {
				all[name] = all[name].Plus(stats)
			}
		}
		return all
	})
	label := Label{"pool", poolNames}
	each := func(of func(parts.Stats) int64) source {
		return source{[]Label{label}, func(emit emitFunc) {
			for name, stats := range read() {
				emit(float64(of(stats)), name)
			}
		}}
	}
	s.gauge("farhand_pool_held",
		"What is held of each pool that tenants share, in its unit: bytes where its name says so, else how many.",
		each(func(p parts.Stats) int64 { return p.Held }))
	s.gauge("farhand_pool_waiting", "Requests that wait for a part of a pool.",
		each(func(p parts.Stats) int64 { return p.Waiting }))
	s.counter("farhand_pool_refused_total",
		"Requests that got no part of a pool, at once or after they had waited, by whose bound they met.",
		source{[]Label{label, {"bound", texts(parts.AllBounds())}}, func(emit emitFunc) {
			for name, stats := range read() {
				for bound, n := range stats.Refused {
					emit(float64(n), name, string(bound))
				}
			}
		}})
}
