package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// tool is a tool of an MCP server, as it was defined at one moment. It implements agent.Tool, agent.SourcedTool and
// agent.UnavailableTool.
type tool struct {
	server *server
	admitted
}

// Spec implements agent.Tool.
func (t *tool) Spec() registry.ToolSpec { return t.spec }

// Source implements agent.SourcedTool.
func (t *tool) Source() string { return registry.SourceMCP + t.server.Name }

// Unavailable implements agent.UnavailableTool.
func (t *tool) Unavailable() string {
	if t.server.state.Load().conn != nil {
		return ""
	}
	return fmt.Sprintf("The MCP server %q does not answer now; it is tried again and again. "+
		"On the gateway's machine, farhand doctor says why.", t.server.Name)
}

// Execute implements agent.Tool. It runs what was approved, or nothing: a definition that the server has changed since
// is not called.
func (t *tool) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	select {
	case t.server.slots <- struct{}{}:
		defer func() { <-t.server.slots }()
	case <-ctx.Done():
		return registry.Result{}, registry.Errorf(registry.CodeBusy,
			"The MCP server %q has as many calls as it may have at once. Retry in a moment.", t.server.Name,
		).With(registry.DispatchedNo)
	}
	now := t.server.state.Load()
	if now.conn == nil {
		return registry.Result{}, registry.Errorf(registry.CodeNotConnected, "%s", t.Unavailable()).With(
			registry.DispatchedNo)
	}
	if current := now.byName[t.spec.Name]; current == nil || current.spec.Hash() != t.spec.Hash() {
		return registry.Result{}, registry.Errorf(registry.CodeBusy,
			"The MCP server %q has changed or removed the tool %q just now. Look at its definition again before you "+
				"call it.", t.server.Name, t.spec.Name).With(registry.DispatchedNo)
	}
	return now.conn.call(ctx, t, args)
}

// call calls a tool and returns what the server answers.
func (c *connection) call(ctx context.Context, t *tool, args json.RawMessage) (registry.Result, error) {
	token, stop := c.progress.follow(ctx)
	defer stop()
	began, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	params := &mcp.CallToolParams{Name: t.name, Arguments: args}
	params.SetProgressToken(token)
	res, err := c.session.CallTool(began, params)
	if err == nil {
		return resultOf(res, c.server.Name), nil
	}
	wire := (*jsonrpc.Error)(nil)
	switch {
	case ctx.Err() != nil:
		return registry.Result{}, ctx.Err() // the server was told that nobody waits any more
	case c.ctx.Err() == nil && errors.As(err, &wire) && wire.Code != notSent:
		text := fmt.Sprintf("The MCP server answered with the error %d: %s", wire.Code, short(wire.Message))
		return registry.Result{Output: text, Error: text}, nil
	default:
		t.server.log.Warn("a call of an MCP server's tool has no answer",
			"server", c.server.Name, "tool", t.name, "error", c.server.scrub(err))
		return registry.Result{}, registry.Errorf(registry.CodeLost,
			"The MCP server %q gave no answer that could be used; whether the tool ran is not known.", c.server.Name,
		).With(registry.DispatchedUnknown)
	}
}

// notSent is the code that the SDK gives a request that its way has refused: no server's word.
const notSent = -32005

// maxShort is how many bytes of a server's sentence are kept.
const maxShort = 500

// short returns a sentence that somebody else wrote, as it may stand in one of ours.
func short(text string) string { return legible.Line(text[:min(len(text), maxShort)]) }
