package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// amender is a hook that changes outcomes.
type amender struct {
	name  string
	trace *[]string
	amend func(agent.Outcome, error) (registry.Result, error)
}

func (a amender) Name() string { return a.name }

func (a amender) Amend(_ context.Context, _ agent.Invocation, out agent.Outcome, err error) (registry.Result, error) {
	*a.trace = append(*a.trace, a.name)
	return a.amend(out, err)
}

// adds appends to the output.
func adds(text string) func(agent.Outcome, error) (registry.Result, error) {
	return func(out agent.Outcome, err error) (registry.Result, error) {
		out.Result.Output += text
		return out.Result, err
	}
}

// Amending hooks run backwards, and those that observe see what the caller reads.
func TestAmendedResult(t *testing.T) {
	var trace []string
	var observed string
	r := &fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true, Output: "0"}}
	out, err := invoke(t, r, agent.PolicyRules{}, `{}`,
		amender{"one", &trace, adds("1")}, amender{"two", &trace, adds("2")},
		hook{name: "see", trace: &trace, after: func(_ agent.Invocation, out agent.Outcome,
			_ error) {
			observed = out.Result.Output
		}})
	if err != nil || out.Result.Output != "021" || observed != "021" {
		t.Errorf("read %+v, observed %q, %v", out.Result, observed, err)
	}
	if want := []string{"before see", "two", "one", "after see"}; !slices.Equal(trace, want) {
		t.Errorf("order %v", trace)
	}
}

// A hook that withholds a result, or breaks while it looks at it, does not make the call one that never ran.
func TestWithheldResult(t *testing.T) {
	for name, amend := range map[string]func(agent.Outcome, error) (registry.Result, error){
		"error": func(agent.Outcome, error) (registry.Result, error) {
			return registry.Result{}, registry.Errorf(registry.CodeHookCancelled, "not for you")
		},
		"panic": func(agent.Outcome, error) (registry.Result, error) { panic("broken") },
	} {
		var trace []string
		d := newDesk(t, amender{"hide", &trace, amend},
			hook{name: "see", trace: &trace, after: func(_ agent.Invocation, out agent.Outcome, err error) {
				if err == nil || out.Result.Output != "" {
					t.Errorf("%s: observed %+v, %v", name, out, err)
				}
			}})
		out, err := d.Invoke(t.Context(), keyed("", `{}`))
		if e := registry.AsError(err); err == nil || e.Dispatched != registry.DispatchedYes || out.Result.Output != "" {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if end := d.callLog.ends()[0]; end.err != nil || !end.res.Success || end.res.Output != "" {
			t.Errorf("%s: recorded %+v", name, end)
		}
	}
}

// What a hook makes of a failure is read by the caller; the record knows better.
func TestReplacedFailure(t *testing.T) {
	var trace []string
	instead := amender{"instead", &trace, func(_ agent.Outcome, err error) (registry.Result, error) {
		if !errors.Is(err, registry.CodeToolNotFound) {
			t.Errorf("asked with %v", err)
		}
		return registry.Result{Success: true, Output: "the weather is fine"}, nil
	}}
	d := newDesk(t, instead)
	d.router.resolveErr = registry.Errorf(registry.CodeToolNotFound, "no")
	out, err := d.Invoke(t.Context(), keyed("", `{}`))
	if err != nil || out.Result.Output != "the weather is fine" {
		t.Fatalf("%+v, %v", out, err)
	}
	if end := d.callLog.ends()[0]; registry.AsError(end.err).Code != registry.CodeToolNotFound {
		t.Errorf("recorded %+v", end)
	}
	// A durable call that was refused stays refused.
	_, err = d.Invoke(t.Context(), keyed("k", `{}`))
	wantCode(t, err, registry.CodeToolNotFound)

	panics := newDesk(t, amender{"broken", &trace, func(agent.Outcome, error) (registry.Result,
		error) {
		panic("broken")
	}})
	panics.router.callErr = registry.Errorf(registry.CodeTimeout, "late").With(registry.DispatchedYes)
	_, err = panics.Invoke(t.Context(), keyed("", `{}`))
	if e := wantCode(t, err, registry.CodeTimeout); !strings.Contains(e.Message, "late") {
		t.Errorf("a broken hook hides why a call failed: %+v", e)
	}
}
