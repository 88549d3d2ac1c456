package chat

import (
	"context"
	"errors"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/loopguard"
	"github.com/farhand/farhand/agent/provider"
)

// ToolsOf opens views as the tools of turns.
func ToolsOf(views *agent.Views) func(agent.SessionContext) Tools {
	return func(sc agent.SessionContext) Tools { return viewed{views.Open(sc)} }
}

// viewed is a view as the tools of a turn.
type viewed struct{ view *agent.View }

// List implements Tools.
func (v viewed) List(ctx context.Context) ([]ListedTool, error) {
	found, err := v.view.Tools(ctx)
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
func (v viewed) Call(ctx context.Context, r ToolRequest) (ToolOutcome, error) {
	out, err := v.view.Invoke(ctx, agent.InvokeRequest{CallID: r.ID, ModelName: r.Name, Args: r.Args, Turn: r.Turn})
	return ToolOutcome{Result: out.Result, Blocked: errors.Is(err, loopguard.ErrBlocked)}, err
}
