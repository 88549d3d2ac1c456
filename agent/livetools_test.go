package agent_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
)

// live are tools that come and go.
type live struct{ set atomic.Pointer[agent.LiveSet] }

func (l *live) Live() agent.LiveSet {
	if set := l.set.Load(); set != nil {
		return *set
	}
	return agent.LiveSet{}
}

// has replaces the tools.
func (l *live) has(tools ...agent.Tool) {
	l.set.Store(&agent.LiveSet{Tools: tools, Version: l.Live().Version + 1})
}

// upstream is a tool of an MCP server, which may be out of reach.
type upstream struct {
	localTool
	down string
}

func (upstream) Source() string { return registry.SourceMCP + "files" }

func (u upstream) Unavailable() string { return u.down }

// The tools of a turn come and go while it runs, and calls of them say whose they are.
func TestLiveToolsComeAndGo(t *testing.T) {
	tools := new(live)
	own := localTools(t, registration(says("zone", "own"))).WithLive(tools)
	h := newFixture(t, agent.PolicyRules{CallDeny: []string{"files__secret"}},
		func(c *agent.Config) { c.LocalTools = own })
	sets := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: h.invoker, Directory: h.store, Policy: h.policy, LocalTools: own,
	})
	turn := sets.Open(agent.SessionContext{Caller: auth.Identity{Tenant: registry.DefaultTenant}})
	for _, step := range []struct {
		tools []agent.Tool
		want  []string
	}{
		{nil, []string{"zone=zone@builtin"}},
		{[]agent.Tool{upstream{says("files__list", "a"), ""}, upstream{says("files__secret", "b"), ""}},
			[]string{"files__list=files__list@mcp:files", "zone=zone@builtin"}},
		{[]agent.Tool{upstream{says("files__list", "a"), "it is down"}}, []string{"zone=zone@builtin"}},
	} {
		tools.has(step.tools...)
		if got := see(t, turn); !slices.Equal(got, step.want) {
			t.Errorf("%v, want %v", got, step.want)
		}
	}

	call := agent.Request{Caller: auth.Identity{Tenant: registry.DefaultTenant}, Tool: "files__list"}
	_, err := h.invoker.Invoke(t.Context(), call)
	if !errors.Is(err, registry.CodeToolNotFound) || !strings.Contains(err.Error(), "it is down") {
		t.Errorf("a tool that is down: %v", err)
	}
	tools.has(upstream{says("files__list", "a"), ""})
	out, err := h.invoker.Invoke(t.Context(), call)
	if err != nil || out.Result.Output != "a" {
		t.Fatalf("%+v, %v", out, err)
	}
	durable := call
	durable.IdempotencyKey = "k"
	if out, err = h.invoker.Invoke(t.Context(), durable); err != nil {
		t.Fatal(err)
	}
	rec, err := h.pod.Calls.Get(t.Context(), registry.DefaultTenant, out.CallID)
	if err != nil || rec.Source != "mcp:files" || rec.State != registry.StateSucceeded {
		t.Errorf("the record is %+v, %v", rec, err)
	}
	tools.has()
	if _, err := h.invoker.Invoke(t.Context(), call); !errors.Is(err, registry.CodeToolNotFound) {
		t.Errorf("a tool that has gone: %v", err)
	}
}

// No device takes a name of an MCP server's tools, or one that looks like it.
func TestNamesOfMCPServersAreReserved(t *testing.T) {
	rules := newPolicy(t, agent.PolicyRules{})
	a := agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{}, "files__*")
	for name, taken := range map[string]bool{
		"files__list": true, "FILES__x": true, "fiIes__x": true, "ﬁles__x": true, "files__": true,
		"files_list": false, "my_files__list": false, "file": false,
	} {
		_, err := a.Admit(t.Context(), registry.ToolSpec{Name: name}, agent.Offered{})
		if errors.Is(err, registry.CodePolicyDenied) != taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}
