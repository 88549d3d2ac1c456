package agent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/agent"
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
	box := localTools(t, agent.Registration{Names: []string{"hand"}, Keeps: agent.KeepsWorkspace(),
		Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{localTool{spec("hand", ""), func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
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
