package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// hook is made of functions and notes in trace when it was asked.
type hook struct {
	name   string
	trace  *[]string
	before func(agent.Invocation) (agent.Decision, error)
	after  func(agent.Invocation, agent.Outcome, error)
}

func (h hook) Name() string { return h.name }

func (h hook) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	*h.trace = append(*h.trace, "before "+h.name)
	if h.before == nil {
		return agent.Pass(), nil
	}
	return h.before(inv)
}

func (h hook) After(_ context.Context, inv agent.Invocation, out agent.Outcome, err error) {
	*h.trace = append(*h.trace, "after "+h.name)
	if h.after != nil {
		h.after(inv, out, err)
	}
}

// invoke runs one call of the tool "t" through the hooks.
func invoke(
	t *testing.T, r *fakeRouter, rules agent.PolicyRules, args string, hooks ...agent.Hook,
) (agent.Outcome, error) {
	t.Helper()
	i := agent.NewInvoker(agent.Config{Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, rules), Hooks: hooks})
	return i.Invoke(t.Context(), agent.Request{
		Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(args),
		Target: registry.Target{SessionID: "s1"},
	})
}

func TestHooksRunInOrder(t *testing.T) {
	var trace []string
	r := &fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true, Output: "done"}}
	see := func(inv agent.Invocation, out agent.Outcome, err error) {
		if inv.CallID != out.CallID || out.Result.Output != "done" || err != nil || inv.Session.DeviceID != "phone" {
			t.Errorf("after hook sees %+v, %+v, %v", inv, out, err)
		}
	}
	out, err := invoke(t, r, agent.PolicyRules{}, `{}`,
		hook{name: "one", trace: &trace, after: see}, hook{name: "two", trace: &trace, after: see})
	if err != nil || !out.Result.Success || out.Session.Key.Session != "s1" || out.Duration <= 0 {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if want := []string{"before one", "before two", "after one", "after two"}; !slices.Equal(trace, want) {
		t.Fatalf("order %v", trace)
	}
}

// Policy comes first: what it denies is never shown to a custom hook.
func TestPolicyComesFirst(t *testing.T) {
	var trace []string
	r := &fakeRouter{spec: spec("t", "")}
	_, err := invoke(t, r, agent.PolicyRules{CallDeny: []string{"t"}}, `{}`, hook{name: "custom", trace: &trace})
	e := wantCode(t, err, registry.CodePolicyDenied)
	if e.Dispatched != registry.DispatchedNo || e.CallID == "" || len(r.called()) != 0 {
		t.Errorf("error %+v, %d calls", e, len(r.called()))
	}
	if want := []string{"after custom"}; !slices.Equal(trace, want) {
		t.Errorf("hooks %v, want %v: it is observed how the call ended", trace, want)
	}
}

func TestHookModifies(t *testing.T) {
	var trace []string
	r := &fakeRouter{spec: spec("t", `{"type":"object","required":["a"]}`)}
	seen := ""
	_, err := invoke(t, r, agent.PolicyRules{}, `{}`,
		hook{name: "one", trace: &trace, before: func(agent.Invocation) (agent.Decision, error) {
			return agent.Modify(json.RawMessage(`{"a":1}`)), nil
		}},
		hook{name: "two", trace: &trace, before: func(inv agent.Invocation) (agent.Decision, error) {
			seen = inv.Args.String()
			return agent.Modify(json.RawMessage(`{"a":2}`)), nil
		}})
	if err != nil {
		t.Fatalf("what the hooks made is valid: %v", err)
	}
	if seen != `{"a":1}` || r.called()[0].Args.String() != `{"a":2}` {
		t.Errorf("the second hook saw %s, the tool got %s", seen, r.called()[0].Args)
	}
}

// Validation is last, so a hook cannot make arguments the schema forbids.
func TestModifiedArgumentsAreValidated(t *testing.T) {
	for args, code := range map[string]registry.Code{
		`{"a":"no number"}`: registry.CodeInvalidArguments,
		`[1]`:               "", // whatever the code: it must not reach the device
		`{`:                 "",
	} {
		var trace []string
		r := &fakeRouter{spec: spec("t", `{"properties":{"a":{"type":"number"}}}`)}
		_, err := invoke(t, r, agent.PolicyRules{}, `{"a":1}`,
			hook{name: "bad", trace: &trace, before: func(agent.Invocation) (agent.Decision, error) {
				return agent.Modify(json.RawMessage(args)), nil
			}})
		if err == nil || len(r.called()) != 0 {
			t.Errorf("%s reached the device", args)
		}
		if code != "" {
			wantCode(t, err, code)
		}
	}
}

func TestHookCancels(t *testing.T) {
	var trace []string
	r := &fakeRouter{spec: spec("t", "")}
	var observed error
	_, err := invoke(t, r, agent.PolicyRules{}, `{}`,
		hook{name: "veto", trace: &trace, before: func(agent.Invocation) (agent.Decision, error) {
			return agent.Cancel("not at night"), nil
		}},
		hook{name: "later", trace: &trace, after: func(_ agent.Invocation, _ agent.Outcome,
			err error) {
			observed = err
		}})
	e := wantCode(t, err, registry.CodeHookCancelled)
	if !strings.Contains(e.Message, "not at night") || e.Dispatched != registry.DispatchedNo || len(r.called()) != 0 {
		t.Errorf("error %+v", e)
	}
	if want := []string{"before veto", "after veto", "after later"}; !slices.Equal(trace, want) ||
		!errors.Is(observed, registry.CodeHookCancelled) {
		t.Errorf("hooks %v, observed %v", trace, observed)
	}
}

// A hook that fails or panics never lets a call through.
func TestBrokenHooks(t *testing.T) {
	for name, before := range map[string]func(agent.Invocation) (agent.Decision, error){
		"plain error": func(agent.Invocation) (agent.Decision, error) {
			return agent.Pass(), errors.New("disk full at /secret")
		},
		"coded error": func(agent.Invocation) (agent.Decision, error) {
			return agent.Pass(), registry.Errorf(registry.CodeRateLimited, "slow down")
		},
		"panic": func(agent.Invocation) (agent.Decision, error) { panic("broken hook") },
	} {
		var trace []string
		r := &fakeRouter{spec: spec("t", "")}
		var err error
		func() {
			defer func() {
				if p := recover(); p != nil && name != "panic" {
					t.Errorf("%s: panic %v", name, p)
				}
			}()
			_, err = invoke(t, r, agent.PolicyRules{}, `{}`, hook{name: "broken", trace: &trace, before: before})
		}()
		if len(r.called()) != 0 {
			t.Errorf("%s: the call went through", name)
		}
		switch name {
		case "plain error":
			if e := wantCode(t, err, registry.CodeInternal); strings.Contains(e.Message, "secret") {
				t.Errorf("the cause shows: %s", e.Message)
			}
		case "coded error":
			wantCode(t, err, registry.CodeRateLimited)
		}
	}
}

// A hook that is broken leaves a line; one that refuses does its work.
func TestBrokenHooksLeaveALine(t *testing.T) {
	for name, before := range map[string]func(agent.Invocation) (agent.Decision, error){
		"disk full": func(agent.Invocation) (agent.Decision, error) { return agent.Pass(), errors.New("disk full") },
		"went mad":  func(agent.Invocation) (agent.Decision, error) { panic("went mad") },
		"": func(agent.Invocation) (agent.Decision, error) {
			return agent.Pass(), registry.Errorf(registry.CodeRateLimited, "slow down")
		},
	} {
		var log bytes.Buffer
		var trace []string
		i := agent.NewInvoker(agent.Config{
			Router: &fakeRouter{spec: spec("t", "")}, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}),
			Hooks: []agent.Hook{hook{name: "scanner", trace: &trace, before: before}},
			Log:   slog.New(slog.NewTextHandler(&log, nil)),
		})
		_, err := i.Invoke(t.Context(), agent.Request{
			Caller: auth.Identity{Tenant: "default"}, Tool: "t", Args: registry.MustJSON(`{"diary":"private"}`),
			Target: registry.Target{SessionID: "s1"},
		})
		line := log.String()
		if err == nil || (name == "") != (line == "") || !strings.Contains(line, name) ||
			strings.Contains(line, "private") ||
			name != "" && (!strings.Contains(line, "level=ERROR") || !strings.Contains(line, "hook=scanner")) {
			t.Errorf("%q: %v, log %q", name, err, line)
		}
	}
}
