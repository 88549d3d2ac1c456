package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
)

// live are tools that come and go.
type live struct {
	set   atomic.Pointer[agent.LiveSet]
	await func(name string) error // nil: nobody waits
}

func (l *live) Live() agent.LiveSet {
	if set := l.set.Load(); set != nil {
		return *set
	}
	return agent.LiveSet{}
}

func (l *live) Owns(name string) bool { return strings.HasPrefix(name, "files__") }

// Await says whom the test has made wait.
func (l *live) Await(_ context.Context, name string, _ time.Time) error {
	if l.await == nil {
		return nil
	}
	return l.await(name)
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

// returning is a tool of a server that is expected back in a moment.
type returning struct{ upstream }

func (returning) Returning() bool { return true }

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

// A call of a tool whose server is away is not told that the tool is gone: it waits until the server is back, or fails
// so that it can be made again. So is one whose server has not said yet which tools it has.
func TestCallsOfAServerThatIsAway(t *testing.T) {
	tools, away := new(live), registry.Errorf(registry.CodeNotConnected, "It is away.")
	own := localTools(t).WithLive(tools)
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.LocalTools = own })
	sets := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: h.invoker, Directory: h.store, Policy: h.policy, LocalTools: own,
	})
	list := upstream{says("files__list", "a"), ""}
	down := upstream{says("files__list", "a"), "it is down"}
	for name, tt := range map[string]struct {
		known []agent.Tool // before
		back  bool         // while the call waits
		code  registry.Code
	}{
		"down":        {[]agent.Tool{down}, false, registry.CodeNotConnected},
		"not known":   {nil, false, registry.CodeNotConnected},
		"comes":       {nil, true, ""},
		"is awaited":  {[]agent.Tool{returning{down}}, false, ""}, // by the tool itself
		"there is no": {[]agent.Tool{upstream{says("files__other", "b"), ""}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tools.await = func(string) error {
				if tt.back {
					tools.has(list)
					return nil
				}
				return away
			}
			caller := auth.Identity{Tenant: registry.DefaultTenant}
			tools.has(tt.known...)
			out, err := h.invoker.Invoke(t.Context(), agent.Request{Caller: caller, Tool: "files__list"})
			if tt.code == "" && (err != nil || out.Result.Output != "a") ||
				tt.code != "" && (!errors.Is(err, tt.code) || !registry.AsError(err).Retryable()) {
				t.Errorf("by name: %+v, %v", out, err)
			}
			tools.has(tt.known...)
			out, err = sets.Open(agent.SessionContext{Caller: caller}).Invoke(t.Context(),
				agent.InvokeRequest{ModelName: "files__list"})
			if tt.code == "" && (err != nil || out.Result.Output != "a") || tt.code != "" && !errors.Is(err, tt.code) {
				t.Errorf("by a model: %+v, %v", out, err)
			}
		})
	}
	tools.has(returning{down})
	shown := see(t, sets.Open(agent.SessionContext{Caller: auth.Identity{Tenant: registry.DefaultTenant}}))
	if !slices.Equal(shown, []string{"files__list=files__list@mcp:files"}) {
		t.Errorf("a model is shown %v", shown)
	}
}

// No device takes a name of an MCP server's tools, or one that looks like it.
func TestNamesOfMCPServersAreReserved(t *testing.T) {
	rules := newPolicy(t, agent.PolicyRules{})
	a := agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{}, "files__*")
	for name, taken := range map[string]bool{
		"files__list": true, "FILES__x": true, "fiIes__x": true, "ﬁles__x": true, "files__": true,
		"files_list": false, "my_files__list": false, "file": false,
		// What they are called with a session behind them, and what models call them:
		"files": true, "Files": true, "files_": true, "files.": true, "files._list": true, "ж-files__list": true,
		"files2": false, "files.list": false, "files-": false, "my.files": false,
	} {
		_, err := a.Admit(t.Context(), registry.ToolSpec{Name: name}, agent.SessionTools{})
		if errors.Is(err, registry.CodePolicyDenied) != taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}
