package agent

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// limitWait is how long a limit check waits for a slow store.
const limitWait = time.Second

// RateLimits is the hook that counts calls against the limits of the policy and the gateway's own limits. A call
// without a limit makes no store request. RateLimits is safe for concurrent use.
//
// A call is counted once, however often it is admitted, even if a later hook refuses it. It is not counted if it has
// reached any of its limits.
type RateLimits struct {
	store  registry.LimitStore
	always []policy.Limit
	open   bool
	log    *slog.Logger
}

// NewRateLimits returns the hook. The limits in always apply in addition to those of the policy. While the store is
// unavailable, calls that have a limit are refused, or pass if open is set.
func NewRateLimits(store registry.LimitStore, always []policy.Limit, open bool, log *slog.Logger) *RateLimits {
	return &RateLimits{store: store, always: always, open: open, log: log}
}

// CallerLimits are the limits for the calls of one identity.
type CallerLimits struct {
	Timeout    time.Duration // of a call when neither the request nor the tool names one
	MaxTimeout time.Duration // the longest timeout that a request or a tool can get
	Rates      []policy.LimitReport
}

// LimitsOf returns the limits for all calls of an identity, whatever tool they call.
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
	until := time.Now().Add(limitWait)
	if inv.Deadline.Before(until) {
		until = inv.Deadline
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	wait, full, err := l.store.Take(ctx, inv.Caller.Tenant, windows)
	switch {
	case err != nil:
		return Pass(), l.unavailable(inv, err)
	case wait > 0:
		return Decision{}, limitReached(inv, limits[full], wait)
	}
	names := make([]string, len(windows))
	for i, w := range windows {
		names[i] = w.Name
	}
	return Decision{charged: names}, nil
}

// unavailable handles a call whose limits cannot be checked: it logs that the call passes, or returns the refusal.
func (l *RateLimits) unavailable(inv Invocation, err error) error {
	if l.open {
		l.log.Warn("rate limits not checked; the call passes (FARHAND_LIMITS_FAIL=open)",
			"call", inv.CallID, "tool", inv.Spec.Name, "error", err)
		return nil
	}
	e := *registry.AsError(err)
	if e.Code == registry.CodeStoreUnavailable {
		e.Message = "The gateway cannot check the rate limit of this call without its store, " +
			"and rejects it (FARHAND_LIMITS_FAIL=closed). Retry in a moment."
	}
	return &e
}

// windowsOf returns the windows that have not counted the call yet, and the limit behind each of them.
func (l *RateLimits) windowsOf(inv Invocation) (windows []registry.Window, limits []policy.Limit) {
	add := func(limit policy.Limit) {
		name, ok := windowName(inv, limit)
		if !ok || slices.Contains(inv.charged, name) {
			return
		}
		// A window stores its calls, so a large limit is spread: 60,000 a minute becomes 10,000 in any ten seconds.
		parts := (limit.Calls + registry.MaxWindowLimit - 1) / registry.MaxWindowLimit
		w := registry.Window{Name: name, Limit: limit.Calls / parts, Period: limit.Window / time.Duration(parts)}
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

// windowNameRoom is the initial capacity for a window name; most names fit.
const windowNameRoom = 192

// windowName returns the name of the window that counts a call for a limit. It returns false if the limit does not
// count the call. Each part has a length prefix, so names are unambiguous.
func windowName(inv Invocation, l policy.Limit) (name string, ok bool) {
	var whose string
	switch s := inv.Session; {
	case l.Per == policy.PerIdentity && inv.Caller.User != "":
		whose = "user:" + inv.Caller.User
	case l.Per == policy.PerIdentity: // never the connection
		whose = "credential:" + inv.Caller.Credential
	case l.Per != policy.PerDevice: // the tenant's
	case s.Key.Session == "": // a local tool
		return "", false
	case s.DeviceID == "":
		whose = "session:" + s.Key.Session
	default: // an unpaired device id is not verified
		whose = "device:" + strconv.Itoa(len(s.UserID)) + ":" + s.UserID + s.DeviceID
	}
	b := make([]byte, 0, windowNameRoom)
	for _, part := range [...]string{string(l.Per), l.Rule, l.Tool, l.Window.String(), whose} {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(b, part...)
	}
	return string(b), true
}

func limitReached(inv Invocation, l policy.Limit, wait time.Duration) error {
	of := map[policy.Per]string{
		policy.PerIdentity: "you", policy.PerTenant: "your tenant", policy.PerDevice: "one device",
	}[l.Per]
	what := "calls"
	if l.Tool != "" {
		what = "calls of " + strconv.Quote(inv.Spec.Name)
	}
	e := registry.Errorf(registry.CodeRateLimited,
		"The limit of %d %s in %v for %s was reached (%s). Retry in %v.", l.Calls, what, l.Window, of, l.Rule,
		wait.Round(time.Millisecond))
	e.Rule, e.RetryAfter = l.Rule, wait
	return e
}

// Budget counts calls against the budgets of tenants and identities. Package agent/access/budget implements it.
type Budget interface {
	// Call counts a call of an identity, or returns why it is refused. It is safe for concurrent use.
	Call(ctx context.Context, who share.Owner) error
}

// Budgets is the hook that counts each call once, like RateLimits and after it, however often the call is admitted.
type Budgets struct{ budget Budget }

// NewBudgets returns the hook.
func NewBudgets(b Budget) Budgets { return Budgets{b} }

// budgetCharge is the name under which a call notes that its budgets have counted it. No rate limit has it.
const budgetCharge = "budget"

// Name implements Hook.
func (Budgets) Name() string { return "budgets" }

// Before implements BeforeHook.
func (b Budgets) Before(ctx context.Context, inv Invocation) (Decision, error) {
	if slices.Contains(inv.charged, budgetCharge) {
		return Pass(), nil
	}
	if err := b.budget.Call(ctx, inv.Caller.Owner()); err != nil {
		return Decision{}, err
	}
	return Decision{charged: []string{budgetCharge}}, nil
}
