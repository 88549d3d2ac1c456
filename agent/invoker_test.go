package agent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

func TestTimeoutIsClamped(t *testing.T) {
	for name, tt := range map[string]struct {
		asked, tools, fallback, most time.Duration
		want                         time.Duration
	}{
		"nothing said":                   {0, 0, 0, 0, agent.DefaultCallTimeout},
		"configured":                     {0, 0, 7 * time.Second, 0, 7 * time.Second},
		"the tool's own":                 {0, 9 * time.Second, 7 * time.Second, 0, 9 * time.Second},
		"the caller wins":                {3 * time.Second, 9 * time.Second, 7 * time.Second, 0, 3 * time.Second},
		"the caller is clamped":          {time.Hour, 0, 0, 0, agent.DefaultMaxCallTimeout},
		"the tool is clamped":            {0, time.Hour, 0, 2 * time.Minute, 2 * time.Minute},
		"the configuration is clamped":   {0, 0, time.Hour, time.Minute, time.Minute},
		"the longest duration there is":  {1<<63 - 1, 0, 0, 0, agent.DefaultMaxCallTimeout},
		"a negative wish is none at all": {-time.Second, 0, 5 * time.Second, 0, 5 * time.Second},
	} {
		s := spec("t", "")
		s.TimeoutMS = tt.tools.Milliseconds()
		r := &fakeRouter{spec: s}
		i := agent.NewInvoker(agent.Config{
			Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}), Timeout: tt.fallback,
			MaxTimeout: tt.most,
		})
		if _, err := i.Invoke(t.Context(), agent.Request{Tool: "t", Timeout: tt.asked}); err != nil {
			t.Fatal(err)
		}
		got := r.called()[0].Timeout
		if got > tt.want || got < tt.want-2*time.Second {
			t.Errorf("%s: the router was given %v, want %v", name, got, tt.want)
		}
	}
}

type secretKey struct{}

// A remote tool sees a deadline and nothing else of the server.
func TestContextCarriesNoValues(t *testing.T) {
	r := &fakeRouter{spec: spec("t", "")}
	i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{})})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), secretKey{}, "workspace"))
	defer cancel()
	if _, err := i.Invoke(ctx, agent.Request{Tool: "t"}); err != nil {
		t.Fatal(err)
	}
	if v := r.ctx.Value(secretKey{}); v != nil {
		t.Errorf("the tool sees %v", v)
	}
	r.callErr = registry.Errorf(registry.CodeCancelled, "stopped").With(registry.DispatchedYes)
	cancel()
	_, _ = i.Invoke(ctx, agent.Request{Tool: "t"})
	if r.ctx.Err() == nil {
		t.Error("the caller's cancellation does not reach the tool")
	}
}

// A context that is derived from a tool's ends when it should: none says of a deadline that it does not keep.
func TestContextsOfAToolEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRouter{spec: spec("t", ""), during: func(ctx context.Context) {
			bounded, cancel := context.WithTimeout(ctx, 2*agent.DefaultCallTimeout)
			defer cancel()
			select {
			case <-bounded.Done():
			case <-time.After(time.Hour):
				t.Error("the context does not end")
			}
		}}
		i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t),
			Policy: newPolicy(t, agent.PolicyRules{})})
		if _, err := i.Invoke(t.Context(), agent.Request{Tool: "t"}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestArgsMustBeAnObject(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) }
	for args, ok := range map[string]bool{
		"": true, "{}": true, " {} ": true, deep(agent.MaxArgsDepth): true,
		"[]": false, "null": false, "1": false, `"{}"`: false, deep(agent.MaxArgsDepth + 1): false,
	} {
		var asked registry.JSON
		if args != "" {
			asked = registry.MustJSON(args)
		}
		r := &fakeRouter{spec: spec("t", "")}
		i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t),
			Policy: newPolicy(t, agent.PolicyRules{})})
		_, err := i.Invoke(t.Context(), agent.Request{Tool: "t", Args: asked})
		if ok != (err == nil) {
			t.Errorf("%.40q: %v", args, err)
		}
		if !ok {
			wantCode(t, err, registry.CodeInvalidRequest)
		} else if got := r.called()[0].Args.String(); args != "" && got != strings.TrimSpace(args) || args == "" &&
			got != "{}" {
			t.Errorf("%.40q was sent as %.40q", args, got)
		}
	}
}

// Every error says whose it is and whether the device can have acted.
func TestErrorsAreComplete(t *testing.T) {
	for name, tt := range map[string]struct {
		resolve, call error
		code          registry.Code
		dispatched    registry.Dispatched
	}{
		"unknown tool": {registry.Errorf(registry.CodeToolNotFound, "no"), nil, registry.CodeToolNotFound,
			registry.DispatchedNo},
		"lost": {nil, registry.Errorf(registry.CodeLost, "silent").With(registry.DispatchedUnknown),
			registry.CodeLost, registry.DispatchedUnknown},
		"timeout": {nil, registry.Errorf(registry.CodeTimeout, "late").With(registry.DispatchedYes),
			registry.CodeTimeout, registry.DispatchedYes},
		"no code": {errors.New("boom"), nil, registry.CodeInternal, registry.DispatchedNo},
		"store is away": {registry.StoreUnavailable("list", errors.New("x")), nil, registry.CodeStoreUnavailable,
			registry.DispatchedNo},
	} {
		r := &fakeRouter{spec: spec("t", ""), resolveErr: tt.resolve, callErr: tt.call}
		i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t),
			Policy: newPolicy(t, agent.PolicyRules{})})
		out, err := i.Invoke(t.Context(), agent.Request{Caller: auth.Identity{Tenant: "default"}, Tool: "t"})
		e := wantCode(t, err, tt.code)
		if e.Dispatched != tt.dispatched || e.CallID == "" || e.CallID != out.CallID {
			t.Errorf("%s: %+v, outcome %+v", name, e, out)
		}
		if original := (*registry.Error)(nil); errors.As(tt.resolve, &original) && original.CallID != "" {
			t.Errorf("%s: a shared error was changed", name)
		}
	}
}

func TestRememberedDefinitionIsReadAgainBeforeItRefuses(t *testing.T) {
	wants := func(property string) registry.ToolSpec {
		return spec("t", `{"type":"object","required":["`+property+`"]}`)
	}
	old := wants("old")
	for name, tt := range map[string]struct {
		now        registry.ToolSpec
		remembered *registry.ToolSpec
		args       string
		refreshErr error
		code       registry.Code
		refreshed  int
		asked      int64 // times the hooks were
	}{
		"the new one allows it":    {wants("new"), &old, `{"new":1}`, nil, "", 1, 2},
		"the new one refuses, too": {wants("new"), &old, `{}`, nil, registry.CodeInvalidArguments, 1, 2},
		"there is no new one":      {old, &old, `{}`, nil, registry.CodeInvalidArguments, 1, 1},
		"it was not remembered":    {old, nil, `{}`, nil, registry.CodeInvalidArguments, 0, 1},
		"nothing is refused":       {wants("new"), &old, `{"old":1}`, nil, "", 0, 1},
		"the device has gone": {
			old, &old, `{}`, registry.Errorf(registry.CodeNotConnected, "gone"), registry.CodeNotConnected, 1, 1,
		},
	} {
		r := &fakeRouter{spec: tt.now, remembered: tt.remembered, refreshErr: tt.refreshErr}
		hook := new(replacing)
		i := agent.NewInvoker(agent.Config{
			Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}), Hooks: []agent.Hook{hook},
		})
		_, err := i.Invoke(t.Context(), agent.Request{Tool: "t", Args: registry.MustJSON(tt.args)})
		if tt.code != "" {
			wantCode(t, err, tt.code)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c := r.called()[0]; c.Args.String() != tt.args {
			t.Errorf("%s: called with %s", name, c.Args)
		}
		if r.refreshed != tt.refreshed || hook.Load() != tt.asked {
			t.Errorf("%s: read again %d times, the hook was asked %d times", name, r.refreshed, hook.Load())
		}
	}
}

// What a hook refused because of what was remembered of a session is decided anew on what is true now.
func TestARefusalOfARememberedRouteIsDecidedAnew(t *testing.T) {
	remembered, now := spec("t", `{"type":"object"}`), spec("t", `{"type":"object","title":"safe"}`)
	remembered.Description = "dangerous"
	remembered = remembered.Hashed()
	r := &fakeRouter{spec: now, remembered: &remembered, result: registry.Result{Success: true}}
	hook := refusing{"dangerous"}
	i := agent.NewInvoker(agent.Config{
		Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}), Hooks: []agent.Hook{hook},
	})
	if _, err := i.Invoke(t.Context(), agent.Request{Tool: "t"}); err != nil || r.refreshed != 1 {
		t.Errorf("%v after the route was read again %d times", err, r.refreshed)
	}
	r.remembered = nil
	r.spec = remembered
	_, err := i.Invoke(t.Context(), agent.Request{Tool: "t"})
	wantCode(t, err, registry.CodeHookCancelled)
}

// A policy refuses before the call's own time is known. The refusal of a remembered route is still the policy's.
func TestThePolicysRefusalOfARememberedRouteIsDecidedAnew(t *testing.T) {
	admins := spec("t", `{"type":"object"}`)
	admins.SecurityLevel = registry.SecurityAdminOnly
	admins = admins.Hashed()
	everyone := spec("t", `{"type":"object"}`)
	for _, now := range []registry.ToolSpec{admins, everyone} {
		r := &fakeRouter{spec: now, remembered: &admins, result: registry.Result{Success: true}}
		i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t),
			Policy: newPolicy(t, agent.PolicyRules{})})
		_, err := i.Invoke(t.Context(), agent.Request{Tool: "t", Model: true, Caller: auth.Identity{Admin: true}})
		if now.SecurityLevel == registry.SecurityAdminOnly {
			wantCode(t, err, registry.CodePolicyDenied)
		} else if err != nil {
			t.Error(err)
		}
		if r.refreshed != 1 {
			t.Errorf("the route was read again %d times", r.refreshed)
		}
	}
}

// refusing is a hook that cancels calls of tools with a description.
type refusing struct{ description string }

func (refusing) Name() string { return "refusing" }

func (h refusing) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	if inv.Spec.Description == h.description {
		return agent.Cancel("not this one"), nil
	}
	return agent.Decision{}, nil
}

// A call that the device's pod refuses, because the tool was registered anew, is checked against the new definition.
func TestACallIsCheckedAgainstTheDefinitionOfTheDevice(t *testing.T) {
	old, now := spec("t", `{"type":"object"}`), spec("t", `{"type":"object","required":["new"]}`)
	for name, tt := range map[string]struct {
		now    registry.ToolSpec // what the device's pod compares with
		stored bool              // the store knows it, too
		args   string
		code   registry.Code
		calls  int
	}{
		"it fits both":              {now, true, `{"new":1}`, "", 2},
		"it does not fit":           {now, true, `{}`, registry.CodeInvalidArguments, 1},
		"the store stays behind":    {now, false, `{"new":1}`, registry.CodeBusy, 6},
		"the definition is the one": {old, true, `{}`, "", 1},
	} {
		for _, durable := range []bool{false, true} {
			r := &fakeRouter{spec: tt.now, remembered: &old, owner: &tt.now, result: registry.Result{Success: true}}
			if !tt.stored {
				r.spec = old
			}
			i := agent.NewInvoker(agent.Config{
				Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}),
			})
			req := agent.Request{Tool: "t", Args: registry.MustJSON(tt.args)}
			if durable {
				req.IdempotencyKey = "key"
			}
			_, err := i.Invoke(t.Context(), req)
			switch {
			case tt.code != "":
				wantCode(t, err, tt.code)
				if e := registry.AsError(err); e.Dispatched != registry.DispatchedNo {
					t.Errorf("%s: %+v", name, e)
				}
			case err != nil:
				t.Errorf("%s: %v", name, err)
			}
			if n := len(r.called()); n != tt.calls {
				t.Errorf("%s: called %d times, not %d", name, n, tt.calls)
			}
		}
	}
}

// A call whose time is up while it is checked anew was not dispatched, and its record is told so: that of the attempt
// before says that it is not known.
func TestTheTimeOfACallIsUpWhileItIsCheckedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, now := spec("t", ""), spec("t", `{"type":"object","title":"new"}`)
		r := &fakeRouter{spec: now, remembered: &old, owner: &now}
		r.during = func(context.Context) { time.Sleep(20 * time.Millisecond) }
		log := newCallLog(t)
		i := agent.NewInvoker(agent.Config{Router: r, CallLog: log, Policy: newPolicy(t, agent.PolicyRules{})})
		_, err := i.Invoke(t.Context(), agent.Request{Tool: "t", Timeout: 10 * time.Millisecond})
		wantCode(t, err, registry.CodeTimeout)
		if e := registry.AsError(log.finished[0].err); e.Dispatched != registry.DispatchedNo {
			t.Errorf("the record is told %+v", e)
		}
	})
}

// replacing is a hook that counts, and gives every call the arguments it has.
type replacing struct{ atomic.Int64 }

func (*replacing) Name() string { return "replacing" }

func (h *replacing) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	h.Add(1)
	return agent.Modify(inv.Args.Raw()), nil
}
