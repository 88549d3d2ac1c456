package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// tool is a tool of an MCP server with one version of its definition. It implements agent.Tool, agent.SourcedTool,
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

// Execute implements agent.Tool. It only runs the approved definition: if the server has changed it since, the call
// fails. If a call certainly did not reach the server, it is retried on another connection.
func (t *tool) Execute(ctx context.Context, args json.RawMessage) (res registry.Result, err error) {
	began := time.Now()
	defer func() { t.server.counts.add(err, time.Since(began)) }()
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

const maxTries = 3

// errNotTaken is the error of a call that certainly did not run, because its connection could not be used.
var errNotTaken = errors.New("the server did not accept the call")

// callOnce waits for a call slot of the server, then calls the tool on the current connection. It also returns that
// connection, or nil if there is none.
func (t *tool) callOnce(ctx context.Context, args json.RawMessage) (registry.Result, *connection, error) {
	place, err := t.server.calls.Acquire(ctx, agent.CallerOf(ctx).Owner(), 1)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return registry.Result{}, nil, registry.Cancelled().With(registry.DispatchedNo)
	case err != nil:
		return registry.Result{}, nil, registry.Errorf(registry.CodeBusy,
			"The MCP server %q, or this tenant's share of it, is at its limit of concurrent calls. "+
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
			"The MCP server %q just changed or removed the tool %q. Read its definition again before you "+
				"call it.", t.server.Name, t.spec.Name).With(registry.DispatchedNo)
	}
	if !now.conn.enter() {
		return registry.Result{}, now.conn, errNotTaken
	}
	defer now.conn.calls.Done()
	ctx, span := trace.Start(ctx, trace.Client, methodCall, t.name)
	span.Text(trace.MCPMethod, methodCall).Text(trace.Tool, t.name).Text(trace.Upstream, t.server.Name)
	res, err := now.conn.call(ctx, t, args)
	switch {
	case err != nil:
		span.End(string(registry.AsError(err).Code))
	case !res.Success:
		span.End(trace.ToolFailed)
	default:
		span.End("")
	}
	return res, now.conn, err
}

// methodCall is the method of MCP that calls a tool.
const methodCall = "tools/call"

func (c *connection) call(ctx context.Context, t *tool, args json.RawMessage) (registry.Result, error) {
	token, stop := c.progress.follow(ctx)
	defer stop()
	began, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	began, attempt := newAttempt(began, agent.CallerOf(ctx).Tenant)
	defer c.finishAttempt(attempt)
	attempt.call, attempt.end, attempt.hide = true, cancel, c.server.hide
	params := &mcp.CallToolParams{Name: t.name, Arguments: args}
	params.SetProgressToken(token)
	if parent, state := trace.Headers(ctx); parent != "" {
		if params.Meta["traceparent"] = parent; state != "" {
			params.Meta["tracestate"] = state
		}
	}
	res, err := c.session.CallTool(began, params)
	if err == nil {
		made := resultOf(res, c.server.Name)
		if !made.Success {
			made.Error, made.Output = c.server.hide(made.Error), c.server.hide(made.Output)
		}
		return made, nil
	}
	wire, refused := (*jsonrpc.Error)(nil), attempt.refusal.Load()
	if refused != nil {
		if attempt.final.Load() || c.sessionLives(began) {
			return failure(*refused), nil
		}
		c.leave(errors.New("the session has ended on the server"))
	}
	switch taken := attempt.sent.Load() && refused == nil; {
	case !taken && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registry.Result{}, t.server.notConnected()
	case !taken && (c.inUse.Err() != nil || errors.Is(err, mcp.ErrConnectionClosed)):
		return registry.Result{}, errNotTaken
	case !taken && ctx.Err() == nil:
		return registry.Result{}, registry.Errorf(registry.CodeInvalidArguments,
			"The arguments cannot be sent in the form that the MCP server %q requires.", c.server.Name,
		).With(registry.DispatchedNo)
	case ctx.Err() != nil:
		return registry.Result{}, ctx.Err() // the server was notified of the cancellation
	case c.ctx.Err() == nil && errors.As(err, &wire) && wire.Code != notSent:
		return failure(errorText(wire.Code, c.server.hide(wire.Message))), nil
	default:
		t.server.lost(t.spec.Name, err)
		return registry.Result{}, registry.Errorf(registry.CodeLost,
			"The MCP server %q gave no usable answer; the tool may have run.", c.server.Name,
		).With(registry.DispatchedUnknown)
	}
}

// sessionLives reports whether the server still accepts requests of the session. Servers answer requests of an ended
// session in various ways, and some give the same answers to invalid calls.
func (c *connection) sessionLives(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.server.Connect)
	defer cancel()
	ctx, attempt := newAttempt(ctx, "")
	defer c.finishAttempt(attempt)
	_ = c.session.Ping(ctx, nil) // an error is also an answer
	return attempt.sent.Load() && attempt.refusal.Load() == nil && ctx.Err() == nil && c.inUse.Err() == nil
}

func failure(text string) registry.Result { return registry.Result{Output: text, Error: text} }

func errorText(code int64, message string) string {
	if code == 0 {
		return "The MCP server returned an error: " + short(message)
	}
	return fmt.Sprintf("The MCP server returned the error %d: %s", code, short(message))
}

// notSent is the SDK's code for a request that the transport rejected. It does not come from the server.
const notSent = -32005

const maxShort = 500

// short returns text from a server, truncated and in one line, to be quoted in a message.
func short(text string) string { return textsafe.Line(text[:min(len(text), maxShort)]) }

// resultOf converts an answer to a result. The runner of local tools bounds its size.
func resultOf(res *mcp.CallToolResult, server string) registry.Result {
	if res.NeedsInput() {
		return failure(fmt.Sprintf("The tool requests more input, which the gateway does not support (%s). "+
			"Put all input in the arguments.", server))
	}
	content := mcpcontent.Reader{Room: math.MaxInt} // local tools may return results that are too large to be inline
	for _, c := range res.Content {
		content.Add(blockOf(c))
	}
	return content.Result(!res.IsError, structured(res.StructuredContent))
}

func blockOf(content mcp.Content) mcpcontent.Block {
	switch c := content.(type) {
	case *mcp.ImageContent:
		return mcpcontent.Block{Type: mcpcontent.Image, Data: c.Data, MIMEType: c.MIMEType}
	case *mcp.AudioContent:
		return mcpcontent.Block{Type: mcpcontent.Audio, Data: c.Data, MIMEType: c.MIMEType}
	case *mcp.ResourceLink:
		return mcpcontent.Block{Type: mcpcontent.ResourceLink, URI: c.URI, Name: c.Name}
	case *mcp.EmbeddedResource:
		if r := c.Resource; r != nil {
			return mcpcontent.Block{
				Type: mcpcontent.Resource, Text: r.Text, Data: r.Blob, MIMEType: r.MIMEType, URI: r.URI,
			}
		}
	case *mcp.TextContent:
		return mcpcontent.Block{Type: mcpcontent.Text, Text: c.Text}
	}
	return mcpcontent.Block{}
}

// structured returns structured content, or nothing if there is none or if it is not valid registry JSON.
func structured(content any) (v registry.JSON) {
	if content == nil {
		return v
	}
	if text, err := json.Marshal(content); err == nil {
		v, _ = registry.ParseJSON(text)
	}
	return v
}

const (
	progressRate  = 10 // reports of one call, a second; more are dropped, except the last
	progressBurst = 20
	maxProgress   = 1 << 10 // bytes of a report's text
)

// reports forwards the servers' progress reports to the calls. The zero value is ready.
type reports struct {
	mu      sync.Mutex
	next    int
	byToken map[string]*report // by token
}

type report struct {
	ctx  context.Context // of Execute
	pace bucket

	mu       sync.Mutex
	buffered *registry.Report // the last report, if it exceeded the rate
	ended    bool
}

// follow returns a progress token for a call. stop ends the reporting, and forwards the last report if the rate limit
// held it back.
func (r *reports) follow(ctx context.Context) (token string, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byToken == nil {
		r.byToken = make(map[string]*report)
	}
	r.next++
	token = strconv.Itoa(r.next)
	of := &report{ctx: ctx, pace: bucket{rate: progressRate, burst: progressBurst}}
	r.byToken[token] = of
	return token, func() {
		r.mu.Lock()
		delete(r.byToken, token)
		r.mu.Unlock()
		of.end()
	}
}

// forward forwards a progress report of a running call. It ignores all other messages.
func (r *reports) forward(message []byte) {
	var n struct {
		Method string `json:"method"`
		Params struct {
			Token    string   `json:"progressToken"`
			Progress *float64 `json:"progress"`
			Total    *float64 `json:"total"`
			Message  string   `json:"message"`
		} `json:"params"`
	}
	if json.Unmarshal(message, &n) != nil || n.Method != "notifications/progress" {
		return
	}
	r.mu.Lock()
	of := r.byToken[n.Params.Token]
	r.mu.Unlock()
	if of == nil {
		return
	}
	if n.Params.Total != nil && *n.Params.Total <= 0 {
		n.Params.Total = nil // unknown
	}
	text := n.Params.Message
	of.forward(registry.Report{
		Progress: n.Params.Progress, Total: n.Params.Total, Message: textsafe.Line(text[:min(len(text), maxProgress)]),
	})
}

func (r *report) forward(p registry.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case r.pace.try():
		r.buffered = nil
		agent.Report(r.ctx, p)
	default:
		r.buffered = &p
	}
}

// end forwards the buffered report. Later reports are ignored.
func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.buffered != nil {
		agent.Report(r.ctx, *r.buffered)
	}
}

// Returning implements agent.ReturningTool.
func (t *tool) Returning() bool {
	now := t.server.state.Load()
	return now.conn == nil && time.Since(now.away) < restart
}
