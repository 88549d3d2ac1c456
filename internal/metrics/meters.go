package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/registry"
)

// callBuckets are in seconds. A call to a device on the same network takes a few milliseconds; a call that asks a
// person takes minutes.
var callBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

type callWay struct {
	endpoint agent.Endpoint
	route    agent.CallRoute
}

type wayCounters struct {
	outcomes tally
	duration *timer
}

// Calls counts calls.
type Calls struct {
	ways    map[callWay]*wayCounters // never changes
	summary *summary
	tenants *tenants
}

var _ agent.Meter = (*Calls)(nil)

func newCalls(s *Set) *Calls {
	endpoints := []agent.Endpoint{agent.EndpointAPI, agent.EndpointV1, agent.EndpointChat, agent.EndpointMCP, other}
	routes := []agent.CallRoute{agent.RouteNone, agent.RouteLocalTool, agent.RouteLocal, agent.RouteRemote}
	outcomes := []string{agent.OutcomeSucceeded, agent.OutcomeFailed, agent.OutcomeReplayed}
	outcomes = append(append(outcomes, texts(registry.Codes())...), other)
	endpoint, route := Label{Name: "endpoint", Values: texts(endpoints)}, Label{Name: "route", Values: texts(routes)}
	c := &Calls{ways: make(map[callWay]*wayCounters), summary: s.summary, tenants: s.tenants}
	calls := s.counters("farhand_calls_total",
		"Finished calls on the pod that received them, by endpoint, route to the tool, and outcome.",
		[]Label{endpoint, route, {Name: "outcome", Values: outcomes}})
	durations := s.histograms("farhand_call_duration_seconds",
		"Duration of calls that the tool answered, from the request to the result.",
		[]Label{endpoint, route}, callBuckets)
	for _, e := range endpoints {
		for _, r := range routes {
			c.ways[callWay{e, r}] = &wayCounters{
				newTally(calls, outcomes, string(e), string(r)), newTimer(durations, string(e), string(r)),
			}
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
	c.summary.call(end)
	c.tenants.call(end)
	if end.Outcome == agent.OutcomeSucceeded || end.Outcome == agent.OutcomeFailed {
		observe(w.duration, end.Duration, end.TraceID)
	}
}

var turnBuckets = []float64{.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Turns counts turns of conversations.
type Turns struct {
	outcomes  map[string]tally  // by channel; never changes
	durations map[string]*timer // by channel; never changes
	calls     tally             // by channel
	input     tally             // by model
	output    tally             // by model
	cached    tally             // by model
	requests  map[string]tally  // by model; never changes
	tenants   *tenants
	cost      *prometheus.CounterVec
	models    []string

	// Price returns the price of a model's tokens. It is false if the price is unknown: then no cost is counted. Set it
	// before the first turn; nil: no price is known.
	Price func(model string, u provider.Usage) (cost float64, known bool)
}

var _ chat.Activity = (*Turns)(nil)

func newTurns(s *Set, models []string) *Turns {
	channels := []string{chat.ChannelChat, chat.ChannelCompletion}
	channel := Label{Name: "channel", Values: channels}
	outcomes := texts([]chat.Outcome{chat.OutcomeDone, chat.OutcomeAborted, chat.OutcomeError, other})
	models = append(append([]string(nil), models...), other)
	model := Label{Name: "model", Values: models}
	ended := s.counters("farhand_turns_total",
		"Finished turns of conversations, by channel and outcome.",
		[]Label{channel, {Name: "outcome", Values: outcomes}})
	durations := s.histograms("farhand_turn_duration_seconds", "Duration of turns, including tool calls.",
		[]Label{channel}, turnBuckets)
	calls := s.counters("farhand_turn_calls_total", "Tool calls that models requested.",
		[]Label{{Name: "channel", Values: append(channels, other)}})
	tokens := s.counters("farhand_model_tokens_total",
		"Tokens that models read (input) and wrote (output), as counted by their providers. Input includes tokens "+
			"that the provider read from its cache (cached).",
		[]Label{{Name: "direction", Values: []string{"input", "output", "cached"}}, model})
	requests := s.counters("farhand_model_requests_total",
		"Requests to models, after retries: complete answers, or why the last request of a turn failed.",
		[]Label{model, {Name: "outcome", Values: modelOutcomes}})
	t := &Turns{
		models: models, tenants: s.tenants, requests: make(map[string]tally),
		cached: newTally(tokens, models, "cached"),
		cost: s.counters("farhand_model_cost_total",
			"Cost of model tokens, in the currency of the prices. Models without a price have no series.",
			[]Label{model}),
		outcomes: make(map[string]tally), durations: make(map[string]*timer),
		calls: newTally(calls, append(channels, other)),
		input: newTally(tokens, models, "input"), output: newTally(tokens, models, "output"),
	}
	for _, c := range channels {
		t.outcomes[c], t.durations[c] = newTally(ended, outcomes, c), newTimer(durations, c)
	}
	for _, m := range models {
		t.requests[m] = newTally(requests, modelOutcomes, m)
	}
	return t
}

// modelOutcomes are answered, and the kinds of failures.
var modelOutcomes = append([]string{"answered"}, append(texts(provider.Kinds()), other)...)

// TurnStarted implements chat.Activity.
func (t *Turns) TurnStarted(chat.TurnInfo) {}

// TurnFinished implements chat.Activity.
func (t *Turns) TurnFinished(info chat.TurnInfo, end chat.TurnEnd) {
	if outcomes, ok := t.outcomes[info.Channel]; ok {
		outcomes.add(string(end.Outcome), 1)
		observe(t.durations[info.Channel], end.Duration, end.TraceID)
	}
	t.calls.add(info.Channel, int64(end.Calls))
	t.input.add(info.Model, int64(end.Usage.Input))
	t.output.add(info.Model, int64(end.Usage.Output))
	t.cached.add(info.Model, int64(end.Usage.Cached))
	t.tenants.turn(info.Key.Tenant, end.Usage)
	model := info.Model
	if !slices.Contains(t.models, model) {
		model = other
	}
	t.requests[model].add("answered", int64(end.Answers))
	if end.Failure != "" {
		t.requests[model].add(string(end.Failure), 1)
	}
	if t.Price == nil {
		return
	}
	if cost, known := t.Price(info.Model, end.Usage); known && cost > 0 {
		t.cost.WithLabelValues(model).Add(cost)
	}
}

var httpBuckets = []float64{.001, .005, .025, .1, .5, 2.5, 10, 60}

// statuses are those of the API's answers.
const statuses = "200 202 204 304 400 401 403 404 405 406 409 410 413 415 422 429 499 500 501 502 503 504"

// HTTP counts requests.
type HTTP struct {
	routes map[api.Route]*routeCounters // never changes
	other  *routeCounters
	codes  tally

	summary *summary
}

type routeCounters struct {
	statuses tally
	duration *timer
}

var _ api.Meter = (*HTTP)(nil)

func newHTTP(s *Set) *HTTP {
	routes, statuses := []string{other}, append(strings.Fields(statuses), other)
	for _, r := range api.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	route := Label{Name: "route", Values: routes}
	codes := append(texts(registry.Codes()), other)
	requests := s.counters("farhand_http_requests_total", "Finished HTTP requests, by route and status.",
		[]Label{route, {Name: "status", Values: statuses}})
	failures := s.counters("farhand_http_errors_total", "Failed HTTP requests, by error code.",
		[]Label{{Name: "code", Values: codes}})
	durations := s.histograms("farhand_http_request_duration_seconds",
		"Duration of HTTP requests. Streams count until their clients disconnect.",
		[]Label{route}, httpBuckets)
	counters := func(name string) *routeCounters {
		return &routeCounters{newTally(requests, statuses, name), newTimer(durations, name)}
	}
	h := &HTTP{
		routes: make(map[api.Route]*routeCounters), other: counters(other), codes: newTally(failures, codes),
		summary: s.summary,
	}
	for _, r := range api.Routes() {
		h.routes[r] = counters(r.Method + " " + r.Path)
	}
	return h
}

// Requested implements api.Meter.
func (h *HTTP) Requested(
	method, route string, status int, code registry.Code, took time.Duration, traceID string,
) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c := h.routes[api.Route{Method: method, Path: route}]
	if c == nil {
		c = h.other
	}
	text := "200" // of most requests
	if status != http.StatusOK {
		text = strconv.Itoa(status)
	}
	c.statuses.add(text, 1)
	observe(c.duration, took, traceID)
	if code != "" {
		h.codes.add(string(code), 1)
		if refused := h.summary.refused[code]; refused != nil {
			refused.Add(1)
		}
	}
}

var redisBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Redis measures round trips to Redis.
type Redis struct {
	durations map[redisstore.Kind]*timer // never changes
	failures  map[redisstore.Kind]tally  // never changes
	summary   *summary
}

var _ redisstore.Meter = (*Redis)(nil)

func newRedis(s *Set) *Redis {
	group := Label{Name: "group", Values: texts(redisstore.Kinds())}
	r := &Redis{
		durations: make(map[redisstore.Kind]*timer), failures: make(map[redisstore.Kind]tally), summary: s.summary,
	}
	durations := s.histograms("farhand_redis_round_trip_duration_seconds",
		"Duration of round trips to Redis, by kind of command. Blocking reads are not counted.",
		[]Label{group}, redisBuckets)
	failures := s.counters("farhand_redis_errors_total",
		"Failed round trips to Redis, by kind of command and of failure.",
		[]Label{group, {Name: "failure", Values: texts(redisstore.Failures())}})
	for _, g := range redisstore.Kinds() {
		r.durations[g] = newTimer(durations, string(g))
		r.failures[g] = newTally(failures, texts(redisstore.Failures()), string(g))
	}
	return r
}

// RoundTrip implements redisstore.Meter.
func (r *Redis) RoundTrip(g redisstore.Kind, took time.Duration, failed redisstore.Failure) {
	if r.durations[g] == nil {
		g = redisstore.KindOther
	}
	r.durations[g].get().Observe(took.Seconds())
	r.summary.roundTrip(took, failed)
	if failed != redisstore.FailureNone {
		r.failures[g].add(string(failed), 1)
	}
}
