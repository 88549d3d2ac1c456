package agent_test

import (
	"context"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// remembering is a router that gives every call the same session.
type remembering struct {
	*fakeRouter
	session registry.Session
}

func (r remembering) Resolve(
	context.Context, string, string, registry.Target, registry.Select,
) (registry.Route, error) {
	return registry.Route{Session: r.session, Spec: r.spec, Remembered: true}, nil
}

func (r remembering) ResolveNow(
	ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select,
) (registry.Route, bool, error) {
	route, err := r.Resolve(ctx, tenant, tool, t, sel)
	return route, false, err
}

// vandal is a hook that changes every map and slice it is given.
type vandal struct{}

func (vandal) Name() string { return "vandal" }

func spoil(s registry.Session) {
	s.Labels["room"] = "spoilt"
	s.Capabilities[0] = "spoilt"
}

func (vandal) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	spoil(inv.Session)
	return agent.Pass(), nil
}

func (vandal) Amend(_ context.Context, inv agent.Invocation, out agent.Outcome, err error) (registry.Result, error) {
	spoil(out.Session)
	return out.Result, err
}

func (vandal) After(_ context.Context, inv agent.Invocation, out agent.Outcome, _ error) {
	spoil(out.Session)
}

// A session may be remembered, and then all calls to it share its maps: a hook gets its own.
func TestHooksGetTheirOwnSession(t *testing.T) {
	r := remembering{
		&fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true}},
		registry.Session{
			Key:    registry.Key{Tenant: "default", Session: "s1"},
			Labels: map[string]string{"room": "hall"}, Capabilities: []string{"ack"},
		},
	}
	i := agent.NewInvoker(agent.Config{
		Router: r, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{}), Hooks: []agent.Hook{vandal{}},
	})
	out, err := i.Invoke(t.Context(), agent.Request{
		Caller: auth.Identity{Tenant: "default"}, Tool: "t", Target: registry.Target{SessionID: "s1"},
	})
	if err != nil || r.session.Labels["room"] != "hall" || r.session.Capabilities[0] != "ack" ||
		out.Session.Labels["room"] != "hall" {
		t.Errorf("%v; the session is %+v, the caller's %+v", err, r.session, out.Session)
	}
}
