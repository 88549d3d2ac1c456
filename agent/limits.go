package agent

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// limitWait bounds what a check of limits costs a call when the store is slow.
const limitWait = time.Second

// LimitStore counts for the whole fleet. registry.LimitStore is one.
type LimitStore interface {
	Take(ctx context.Context, tenant string, windows []registry.Window) (wait time.Duration, full int, err error)
}

// RateLimits is the hook that counts calls against the limits of the policy and those that hold for everybody. A call
// without a limit asks the store nothing. It is safe for concurrent use.
//
// A call is counted once, however often it is admitted, and also if it is refused by a hook after this one. It is not
// counted if any of its limits is reached.
type RateLimits struct {
	store  LimitStore
	always []policy.Limit
	open   bool
	log    *slog.Logger
}

// NewRateLimits returns the hook. The limits always hold, beside those of the policy. While the store cannot be asked,
// calls that have a limit are refused, or pass if open is set.
func NewRateLimits(store LimitStore, always []policy.Limit, open bool, log *slog.Logger) *RateLimits {
	return &RateLimits{store: store, always: always, open: open, log: log}
}

// CallerLimits bound the calls of one identity.
type CallerLimits struct {
	Timeout    time.Duration // of a call when neither the request nor the tool names one
	MaxTimeout time.Duration // the longest timeout that a request or a tool can get
	Rates      []policy.LimitReport
}

// LimitsOf returns the limits that hold for the calls of somebody, whatever is called.
func (i *Invoker) LimitsOf(who auth.Identity) CallerLimits {
	limits := CallerLimits{Timeout: i.cfg.Timeout, MaxTimeout: i.cfg.MaxTimeout, Rates: []policy.LimitReport{}}
	if l, ok := i.cfg.Limits.(*RateLimits); ok {
		for _, limit := range l.always {
			limits.Rates = append(limits.Rates, policy.ReportLimit(limit))
		}
		limits.Rates = append(limits.Rates, i.cfg.Policy.LimitsOf(who)...)
	}
	return limits
}

// Name implements Hook.
func (l *RateLimits) Name() string { return "rate limits" }

// Before implements BeforeHook.
func (l *RateLimits) Before(ctx context.Context, inv Invocation) (Decision, error) {
	windows, limits := l.windowsOf(inv)
	if len(windows) == 0 {
		return Pass(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, limitWait)
	defer cancel()
	wait, full, err := l.store.Take(ctx, inv.Caller.Tenant, windows)
	switch {
	case err != nil:
		return Pass(), l.unavailable(inv, err)
	case wait > 0:
		return Decision{}, reached(inv, limits[full], wait)
	}
	names := make([]string, len(windows))
	for i, w := range windows {
		names[i] = w.Name
	}
	return Decision{charged: names}, nil
}

// unavailable says what becomes of a call whose limits cannot be checked, in the log and to the caller.
func (l *RateLimits) unavailable(inv Invocation, err error) error {
	if l.open {
		l.log.Warn("rate limits not checked; the call passes (FARHAND_LIMITS_FAIL=open)",
			"call", inv.CallID, "tool", inv.Spec.Name, "error", err)
		return nil
	}
	e := *registry.AsError(err)
	if e.Code == registry.CodeStoreUnavailable {
		e.Message = "The gateway cannot reach its store, so it cannot check the rate limit of this call, " +
			"and refuses it (FARHAND_LIMITS_FAIL=closed). Retry after a moment."
	}
	return &e
}

// windowsOf returns the windows of a call that have not counted it yet, and the limit that each stands for.
func (l *RateLimits) windowsOf(inv Invocation) (windows []registry.Window, limits []policy.Limit) {
	add := func(limit policy.Limit) {
		name, ok := windowName(inv, limit)
		if !ok || slices.Contains(inv.charged, name) {
			return
		}
		w := windowOf(name, limit)
		for i := range windows {
			if windows[i].Name == name {
				if limit.Calls < limits[i].Calls {
					windows[i], limits[i] = w, limit
				}
				return
			}
		}
		windows, limits = append(windows, w), append(limits, limit)
	}
	for _, limit := range l.always {
		add(limit)
	}
	if inv.Policy != nil {
		for _, limit := range inv.Policy.Limits {
			add(limit)
		}
	}
	return windows, limits
}

// windowOf returns the window that counts a limit. A window keeps each of its calls, so it has a bound; a larger limit
// is spread evenly: 60,000 a minute lets 10,000 pass in any ten seconds.
func windowOf(name string, l policy.Limit) registry.Window {
	parts := (l.Calls + registry.MaxWindowLimit - 1) / registry.MaxWindowLimit
	return registry.Window{Name: name, Limit: l.Calls / parts, Period: l.Window / time.Duration(parts)}
}

// windowNameRoom is enough for most names of windows.
const windowNameRoom = 192

// windowName names what a limit counts together; false if it does not count the call. Each part ends where it says, so
// no two names are the same.
func windowName(inv Invocation, l policy.Limit) (name string, ok bool) {
	var whose string
	switch l.Per {
	case policy.PerIdentity:
		whose = identityOf(inv.Caller)
	case policy.PerDevice:
		s := inv.Session
		if s.Key.Session == "" { // a local tool
			return "", false
		}
		if s.DeviceID == "" {
			whose = "session:" + s.Key.Session
		} else { // an id that is not paired is anybody's to say
			whose = "device:" + strconv.Itoa(len(s.UserID)) + ":" + s.UserID + s.DeviceID
		}
	case policy.PerTenant:
	}
	b := make([]byte, 0, windowNameRoom)
	for _, part := range [...]string{string(l.Per), l.Rule, l.Tool, l.Window.String(), whose} {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(b, part...)
	}
	return string(b), true
}

// identityOf names an identity: its user, otherwise its credential, and never its connection.
func identityOf(who auth.Identity) string {
	if who.User != "" {
		return "user:" + who.User
	}
	return "credential:" + who.Credential
}

// reached is the error of a call that would exceed a limit.
func reached(inv Invocation, l policy.Limit, wait time.Duration) error {
	of := map[policy.Per]string{
		policy.PerIdentity: "you", policy.PerTenant: "all of your tenant together", policy.PerDevice: "one device",
	}[l.Per]
	what := "calls"
	if l.Tool != "" {
		what = "calls of " + strconv.Quote(inv.Spec.Name)
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"The limit of %d %s in %v for %s is reached (%s). Retry in %v.", l.Calls, what, l.Window, of, l.Rule,
		wait.Round(time.Millisecond))
	e.Rule, e.RetryAfter = l.Rule, wait
	return e
}

// Endpoint is where a call came in.
type Endpoint string

// The endpoints. Empty means none of them.
const (
	EndpointAPI  Endpoint = "api"  // the routes that call a tool
	EndpointV1   Endpoint = "v1"   // a turn of a chat completion
	EndpointChat Endpoint = "chat" // a turn of a conversation that the gateway keeps
	EndpointMCP  Endpoint = "mcp"  // a client of MCP
)

// CallRoute is the way a call took to its tool.
type CallRoute string

// The routes.
const (
	RouteNone      CallRoute = "none"    // no tool was found
	RouteLocalTool CallRoute = "builtin" // to a local tool, in the gateway
	RouteLocal     CallRoute = "local"   // to a device on this pod
	RouteRemote    CallRoute = "remote"  // to a device on another pod
)

// Outcomes of calls that are no failures of the gateway. Every other outcome is a registry.Code.
const (
	OutcomeSucceeded = "succeeded" // the tool ran and succeeded
	OutcomeFailed    = "failed"    // the tool ran and said that it failed
	OutcomeReplayed  = "replayed"  // an earlier call with the same idempotency key has, or will have, the answer
)

// CallEnd says how a call ended.
type CallEnd struct {
	Endpoint Endpoint
	Route    CallRoute // as far as it was known when the call was admitted
	Outcome  string
	Duration time.Duration // since it was asked for

	Tenant, User, Tool string // who asked, and for what
	Key                string // auth.Identity.Account of who asked
	BytesIn, BytesOut  int    // of the arguments and the output
}

// Meter counts calls. Its method returns at once and is safe for concurrent use. It hears of every call once, on the
// pod that was asked: of a call that outlives its request when the call has ended, also if nobody waited.
type Meter interface{ CallEnded(CallEnd) }

func (i *Invoker) count(req *Request, took time.Duration, res registry.Result, err error) {
	if i.cfg.Meter == nil {
		return
	}
	end := CallEnd{
		Endpoint: req.Endpoint, Route: req.where, Outcome: OutcomeFailed, Duration: took,
		Tenant: req.Caller.Tenant, User: req.Caller.User, Key: req.Caller.Account(), Tool: req.Tool,
		BytesIn:  req.argsBytes,
		BytesOut: len(res.Output) + res.Structured.Len() + int(registry.InlineSize(res.Parts)),
	}
	switch {
	case err != nil:
		end.Outcome = string(registry.AsError(err).Code)
	case res.Success:
		end.Outcome = OutcomeSucceeded
	}
	if end.Route == "" {
		end.Route = RouteNone
	}
	i.cfg.Meter.CallEnded(end)
}

// countReplay counts a request that gets the answer of an earlier call.
func (i *Invoker) countReplay(req *Request) {
	req.counted = true
	if i.cfg.Meter != nil {
		i.cfg.Meter.CallEnded(CallEnd{Endpoint: req.Endpoint, Route: req.where, Outcome: OutcomeReplayed})
	}
}

// routeOf returns the way a prepared call takes.
func (i *Invoker) routeOf(p *prepared) CallRoute {
	switch {
	case p.local != nil:
		return RouteLocalTool
	case p.route.Session.Key.Session == "":
		return RouteNone
	case p.route.Session.Pod == i.cfg.Pod:
		return RouteLocal
	default:
		return RouteRemote
	}
}
