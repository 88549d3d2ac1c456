package chat

import (
	"context"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Tools are the tools that one turn may call. They are opened for the turn and safe for concurrent use.
type Tools interface {
	// List returns the tools that can be called now. It is called before each request to the model, because tools come
	// and go in the middle of a conversation. No two have the same Name.
	List(ctx context.Context) ([]ListedTool, error)

	// Call runs a tool and returns when it has ended, or soon after ctx has. An unknown name, or one that is no longer
	// listed, is an error like any other, so that the call is counted and recorded. The error is an *registry.Error.
	// The outcome's Blocked is valid with an error, too.
	Call(ctx context.Context, r ToolRequest) (ToolOutcome, error)
}

// ListedTool is a tool as the model sees it, with its source.
type ListedTool struct {
	provider.Tool
	Original string // its name at its source, which models may not accept
	Source   string // as in /api/tools: "builtin", a server, a session
}

// ToolRequest asks for one call.
type ToolRequest struct {
	ID   string        // from registry.NewCallID
	Name string        // as the model wrote it; characters no Name has are underscores
	Args registry.JSON // an object
	Turn string        // id of the turn
}

// ToolOutcome is how a call ended.
type ToolOutcome struct {
	Result  registry.Result
	Blocked bool // the loop guard has seen enough: the turn must end
}

// The channels of the contexts tools are opened with.
const (
	ChannelChat       = "chat"       // a conversation the gateway keeps
	ChannelCompletion = "completion" // one its caller keeps
)

// noTools is what there is when nobody opens tools.
type noTools struct{}

// List implements Tools.
func (noTools) List(context.Context) ([]ListedTool, error) { return nil, nil }

// Call implements Tools.
func (noTools) Call(_ context.Context, r ToolRequest) (ToolOutcome, error) {
	err := registry.Errorf(registry.CodeToolNotFound, "There is no tool %q here.", r.Name)
	return ToolOutcome{}, err.With(registry.DispatchedNo)
}
