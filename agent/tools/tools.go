package tools

import (
	"context"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Directory is the part of registry.Directory the tools need.
type Directory interface {
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
}

// Deps is what the tools stand on.
type Deps struct {
	Directory Directory        // required
	Policy    *agent.Policy    // required: tools that may not be called are not shown
	Now       func() time.Time // default: time.Now
}

// Names returns the names of all tools that the gateway has, in this package and in those below it. Nobody else may
// have them.
func Names() []string {
	return []string{
		"time", "sessions", "read", "write", "edit", "exec", "bash", "browser", "nodes", "node-invoke", "canvas",
	}
}

// Registrations returns everything this package has, for agent.NewLocalTools.
func Registrations(d Deps) []agent.Registration {
	if d.Now == nil {
		d.Now = time.Now
	}
	return []agent.Registration{
		{Names: []string{"time"}, Make: func(agent.SessionContext) []agent.Tool { return []agent.Tool{clock{d.Now}} }},
		{Names: []string{"sessions"}, Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{sessions{d.Directory, d.Policy, sc}}
		}},
	}
}

// readOnly is what models are told of tools that change nothing.
func readOnly() *registry.Annotations {
	yes := true
	return &registry.Annotations{ReadOnlyHint: &yes, IdempotentHint: &yes}
}

// ownWorld says of a tool that nothing in its answers was written by strangers.
func ownWorld(a *registry.Annotations) *registry.Annotations {
	no := false
	a.OpenWorldHint = &no
	return a
}

// failed is the result of a tool that cannot do what it was asked, with the reason for the model.
func failed(reason string) registry.Result {
	return registry.Result{Output: reason, Error: reason}
}

// answer is a result with the same in words and in JSON.
func answer(text string, structured any) (registry.Result, error) {
	body, err := json.Marshal(structured)
	if err != nil {
		return registry.Result{}, err
	}
	checked, err := registry.ParseJSON(body)
	return registry.Result{Success: true, Output: text, Structured: checked}, err
}
