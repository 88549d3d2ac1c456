package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// tool is a tool of an MCP server, as it was defined at one moment. It implements agent.Tool, agent.SourcedTool,
// agent.UnavailableTool and agent.ReturningTool.
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
	return t.server.unavailable()
}

// Execute implements agent.Tool. It runs what was approved, or nothing: a definition that the server has changed since
// is not called. A call that the server certainly has not taken is made again, on another connection.
func (t *tool) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	var useless *connection
	for range maxTries {
		if err := t.server.connected(ctx, useless); err != nil {
			return registry.Result{}, err
		}
		res, used, err := t.callOnce(ctx, args)
		if !errors.Is(err, errNotTaken) {
			return res, err
		}
		useless = used
	}
	return registry.Result{}, t.server.notConnected()
}

// maxTries is how many connections a call is tried on.
const maxTries = 3

// errNotTaken is the error of a call that has certainly not run, because its connection could not be used.
var errNotTaken = errors.New("the server has not taken the call")

// callOnce calls the tool once the server has a place for the call, on the connection that there is then. It returns
// which one that was, nil if there is none.
func (t *tool) callOnce(ctx context.Context, args json.RawMessage) (registry.Result, *connection, error) {
	place, err := t.server.calls.Acquire(ctx, agent.CallerOf(ctx).Owner(), 1)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return registry.Result{}, nil, cancelled()
	case err != nil:
		return registry.Result{}, nil, registry.Errorf(registry.CodeBusy,
			"The MCP server %q has as many calls as it may have at once, or as this tenant may have there. "+
				"Retry in a moment.", t.server.Name,
		).With(registry.DispatchedNo)
	}
	defer place.Release()
	now := t.server.state.Load() // the definition may have changed while the call waited
	if now.conn == nil {
		return registry.Result{}, nil, errNotTaken
	}
	if current := now.byName[t.spec.Name]; current == nil || current.spec.Hash() != t.spec.Hash() {
		return registry.Result{}, now.conn, registry.Errorf(registry.CodeBusy,
			"The MCP server %q has changed or removed the tool %q just now. Look at its definition again before you "+
				"call it.", t.server.Name, t.spec.Name).With(registry.DispatchedNo)
	}
	if !now.conn.enter() {
		return registry.Result{}, now.conn, errNotTaken
	}
	defer now.conn.exit()
	res, err := now.conn.call(ctx, t, args)
	return res, now.conn, err
}

// call calls a tool and returns what the server answers.
func (c *connection) call(ctx context.Context, t *tool, args json.RawMessage) (registry.Result, error) {
	token, stop := c.progress.follow(ctx)
	defer stop()
	began, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	began, attempt := newAttempt(began)
	params := &mcp.CallToolParams{Name: t.name, Arguments: args}
	params.SetProgressToken(token)
	res, err := c.session.CallTool(began, params)
	if err == nil {
		return resultOf(res, c.server.Name), nil
	}
	wire, refused := (*jsonrpc.Error)(nil), attempt.refusal.Load()
	if refused != nil {
		if c.sessionLives(began) {
			return failure(refused.String()), nil
		}
		c.leave(errors.New("the server does not know the session any more"))
	}
	switch taken := attempt.sent.Load() && refused == nil; {
	case !taken && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registry.Result{}, t.server.notConnected()
	case !taken && (c.inUse.Err() != nil || errors.Is(err, mcp.ErrConnectionClosed)):
		return registry.Result{}, errNotTaken
	case !taken && ctx.Err() == nil:
		return registry.Result{}, registry.Errorf(registry.CodeInvalidArguments,
			"The arguments cannot be sent in the form that the MCP server %q demands.", c.server.Name,
		).With(registry.DispatchedNo)
	case ctx.Err() != nil:
		return registry.Result{}, ctx.Err() // the server was told that nobody waits any more
	case c.ctx.Err() == nil && errors.As(err, &wire) && wire.Code != notSent:
		return failure(errorText(wire.Code, wire.Message)), nil
	default:
		t.server.log.Warn("a call of an MCP server's tool has no answer",
			"server", c.server.Name, "tool", t.spec.Name, "error", c.server.scrub(err))
		return registry.Result{}, registry.Errorf(registry.CodeLost,
			"The MCP server %q gave no answer that could be used; whether the tool ran is not known.", c.server.Name,
		).With(registry.DispatchedUnknown)
	}
}

// sessionLives reports whether the server still takes requests of the session. Servers answer those of a session that
// has ended in various ways, and some of these also if a call is wrong.
func (c *connection) sessionLives(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.server.Connect)
	defer cancel()
	ctx, attempt := newAttempt(ctx)
	_ = c.session.Ping(ctx, nil) // also an error is an answer
	return attempt.sent.Load() && attempt.refusal.Load() == nil && ctx.Err() == nil && c.inUse.Err() == nil
}

// failure is the result of a tool that failed.
func failure(text string) registry.Result { return registry.Result{Output: text, Error: text} }

// errorText is an error of a server, as a model may read it.
func errorText(code int64, message string) string {
	if code == 0 {
		return "The MCP server answered with an error: " + short(message)
	}
	return fmt.Sprintf("The MCP server answered with the error %d: %s", code, short(message))
}

// notSent is the code that the SDK gives a request that its way has refused: no server's word.
const notSent = -32005

// maxShort is how many bytes of a server's sentence are kept.
const maxShort = 500

// short returns a sentence that somebody else wrote, as it may stand in one of ours.
func short(text string) string { return legible.Line(text[:min(len(text), maxShort)]) }
