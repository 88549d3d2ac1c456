package chat

import (
	"context"
	"errors"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/loopguard"
	"github.com/farhand/farhand/agent/provider"
)

// ToolsOf opens tool sets as the tools of turns.
func ToolsOf(toolSets *agent.ToolSets) func(agent.SessionContext) Tools {
	return func(sc agent.SessionContext) Tools { return toolSet{toolSets.Open(sc)} }
}

// toolSet is a ToolSet as the tools of a turn.
type toolSet struct{ set *agent.ToolSet }

// List implements Tools.
func (t toolSet) List(ctx context.Context) ([]ListedTool, error) {
	found, err := t.set.Tools(ctx)
	if err != nil {
		return nil, err
	}
	listed := make([]ListedTool, len(found))
	for i, t := range found {
		listed[i] = ListedTool{
			Tool:     provider.Tool{Name: t.ModelName, Description: t.Spec.Description, Parameters: t.Spec.Parameters},
			Original: t.Spec.Name, Source: t.Source,
		}
	}
	return listed, nil
}

// Call implements Tools.
func (t toolSet) Call(ctx context.Context, r ToolRequest) (ToolOutcome, error) {
	out, err := t.set.Invoke(ctx, agent.InvokeRequest{CallID: r.ID, ModelName: r.Name, Args: r.Args, Turn: r.Turn})
	return ToolOutcome{Result: out.Result, Blocked: errors.Is(err, loopguard.ErrBlocked)}, err
}
