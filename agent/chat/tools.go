package chat

import (
	"context"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Tools are the tools that one turn may call. They are opened for the turn and safe for concurrent use. *agent.ToolSet
// implements it.
type Tools interface {
	// Tools returns the tools that can be called now. It is called before each request to the model, because tools come
	// and go in the middle of a conversation. No two have the same ModelName.
	Tools(ctx context.Context) ([]agent.ShownTool, error)

	// Invoke runs a tool and returns when it has ended, or soon after ctx has. An unknown name, or one that is no
	// longer listed, is an error like any other, so that the call is counted and recorded. The error is an
	// *registry.Error.
	Invoke(ctx context.Context, r agent.InvokeRequest) (agent.Outcome, error)
}

var _ Tools = (*agent.ToolSet)(nil)

// The channels of the contexts tools are opened with.
const (
	ChannelChat       = "chat"       // a conversation the gateway keeps
	ChannelCompletion = "completion" // one its caller keeps
)

// noTools is what there is when nobody opens tools.
type noTools struct{}

// Tools implements Tools.
func (noTools) Tools(context.Context) ([]agent.ShownTool, error) { return nil, nil }

// Invoke implements Tools.
func (noTools) Invoke(_ context.Context, r agent.InvokeRequest) (agent.Outcome, error) {
	err := registry.Errorf(registry.CodeToolNotFound, "There is no tool %q here.", r.ModelName)
	return agent.Outcome{}, err.With(registry.DispatchedNo)
}
