package chat

import (
	"context"
	"encoding/json"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Tools is what one turn may call. It is opened for the turn and safe for concurrent use.
type Tools interface {
	// List returns what can be called now. It is asked before each request to the model, because tools come and go in
	// the middle of a conversation. No two have the same Name.
	List(ctx context.Context) ([]ListedTool, error)

	// Call runs a tool and returns when it has ended, or soon after ctx has. A name that is not, or no longer, listed is
	// an error like any other, so that it is counted and recorded too. The error is an *registry.Error; the outcome's
	// Blocked means something with an error, too.
	Call(ctx context.Context, r ToolRequest) (ToolOutcome, error)
}

// ListedTool is a tool as the model is told of it, and where it comes from.
type ListedTool struct {
	provider.Tool
	Original string // its name at its source, which need not be one that models accept
	Source   string // as in /api/tools: "builtin", a server, a session
}

// ToolRequest asks for one call.
type ToolRequest struct {
	ID   string          // from registry.NewCallID
	Name string          // as the model wrote it; characters no Name has are underscores
	Args json.RawMessage // a JSON object
	Turn string          // id of the turn
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
	return ToolOutcome{}, registry.Errorf(registry.CodeToolNotFound, "There is no tool %q here.", r.Name).With(registry.DispatchedNo)
}
