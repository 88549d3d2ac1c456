package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// elsewhere has every errand run on another pod.
type elsewhere struct{ other registry.PlaceKeeper }

func (p *elsewhere) Run(
	ctx context.Context, e registry.Errand, report func(registry.Report),
) (registry.Result, error) {
	return p.other.Run(ctx, e, report)
}

func (p *elsewhere) Serve(k registry.PlaceKeeper) { p.other = k }

// A tool that runs on the pod that keeps its things knows as much of who asks, and how, as one that runs at once.
func TestErrandsKnowTheAsker(t *testing.T) {
	var by agent.Asker
	box := localTools(t, agent.Registration{Names: []string{"hand"}, State: agent.WorkspaceState(),
		Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{localTool{spec("hand", ""),
				func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
					by = sc.Asker(ctx)
					return registry.Result{Success: true}, nil
				}}}
		}})
	places := new(elsewhere)
	i, _ := handed(t, spec("t", ""), "", func(c *agent.Config) { c.LocalTools, c.Places = box, places })
	out, err := i.Invoke(t.Context(), agent.Request{
		Caller: ruledCaller, Tool: "hand", Model: true, Endpoint: agent.EndpointMCP,
	})
	if err != nil || !out.Result.Success || !by.Model || by.Endpoint != agent.EndpointMCP || by.Who.User != "ann" {
		t.Errorf("%+v, %v: %+v", out, err, by)
	}
}

// A factory may make its tool for some callers only: it sees the same rights where the tool runs.
func TestErrandsHaveTheRightsOfTheirCaller(t *testing.T) {
	var by []auth.Identity
	box := localTools(t, agent.Registration{Names: []string{"hand"}, State: agent.WorkspaceState(), Optional: true,
		Make: func(sc agent.SessionContext) []agent.Tool {
			if sc.Caller.Tools == "" {
				return nil
			}
			return []agent.Tool{localTool{spec("hand", ""),
				func(context.Context, json.RawMessage) (registry.Result, error) {
					by = append(by, sc.Caller)
					return registry.Result{Success: true}, nil
				}}}
		}})
	places := new(elsewhere)
	i, _ := handed(t, spec("t", ""), "", func(c *agent.Config) { c.LocalTools, c.Places = box, places })
	caller := ruledCaller
	caller.Device, caller.Tools, caller.Context, caller.Person = "phone", "hand", string(agent.ContextGroup), true
	out, err := i.Invoke(t.Context(), agent.Request{Caller: caller, Tool: "hand"})
	if err != nil || !out.Result.Success || len(by) != 1 || by[0] != caller {
		t.Errorf("%+v, %v: %+v", out, err, by)
	}
}

// What is lost is told by the call that finds it out, also if it ends without a result: no later one knows.
func TestLossesAreToldWithAnError(t *testing.T) {
	for name, fails := range map[string]error{
		"a result": nil, "the call was cancelled": context.Canceled,
		"an error of its own": registry.Errorf(registry.CodeBusy, "No room."),
	} {
		box := localTools(t, agent.Registration{Names: []string{"hand"}, State: agent.WorkspaceState(),
			Make: func(agent.SessionContext) []agent.Tool {
				return []agent.Tool{localTool{spec("hand", ""),
					func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
						agent.ReportLost(ctx, "The files are gone.")
						return registry.Result{Success: true, Output: "done"}, fails
					}}}
			}})
		i, _ := handed(t, spec("t", ""), "", func(c *agent.Config) { c.LocalTools, c.Places = box, new(elsewhere) })
		out, err := i.Invoke(t.Context(), agent.Request{Caller: ruledCaller, Tool: "hand"})
		said := out.Result.Output
		if err != nil {
			said = registry.AsError(err).Message
		}
		if (err == nil) != (fails == nil) || !strings.HasPrefix(said, "[The files are gone.]\n") {
			t.Errorf("%s: %q, %v", name, said, err)
		}
		if want, code := registry.CodeBusy, registry.AsError(err).Code; name == "an error of its own" && code != want {
			t.Errorf("%s: the code is %s", name, code)
		}
	}
}
