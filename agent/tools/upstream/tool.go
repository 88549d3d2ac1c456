package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/mcpcontent"
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
	began, attempt := newAttempt(began, agent.CallerOf(ctx).Tenant)
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
	ctx, attempt := newAttempt(ctx, "")
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

// resultOf returns an answer as a result. Its size is bounded by whoever runs local tools.
func resultOf(res *mcp.CallToolResult, server string) registry.Result {
	if res.NeedsInput() {
		text := fmt.Sprintf("The tool asks for something more, and the gateway lets no MCP server ask (%s). "+
			"Say everything in the arguments.", server)
		return registry.Result{Output: text, Error: text}
	}
	content := mcpcontent.Reader{Room: math.MaxInt} // local tools have a place for what is too large to be inline
	for _, c := range res.Content {
		content.Add(blockOf(c))
	}
	return content.Result(!res.IsError, structured(res.StructuredContent))
}

// blockOf returns a block of content as agent/mcpcontent has it.
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

// structured returns structured content, nothing if there is none, or if it is no JSON as ours.
func structured(content any) registry.JSON {
	if content == nil {
		return registry.JSON{}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return registry.JSON{}
	}
	v, err := registry.ParseJSON(text)
	if err != nil {
		return registry.JSON{}
	}
	return v
}

const (
	progressRate  = 10 // reports of one call, a second; others are dropped, but for the last
	progressBurst = 20
	maxProgress   = 1 << 10 // bytes of the text of one
)

// reports passes on what a server says of the progress of calls. The zero value is ready.
type reports struct {
	mu   sync.Mutex
	next int
	of   map[string]*report // by token
}

// report is where the progress of one call goes.
type report struct {
	ctx  context.Context // of Execute
	pace bucket

	mu    sync.Mutex
	held  *registry.Report // the last one, if it came too fast
	ended bool
}

// follow returns the token of a call whose progress is wanted until stop is called, which passes on the last report if
// that came too fast.
func (r *reports) follow(ctx context.Context) (token string, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[string]*report)
	}
	r.next++
	token = strconv.Itoa(r.next)
	of := &report{ctx: ctx, pace: bucket{rate: progressRate, burst: progressBurst}}
	r.of[token] = of
	return token, func() {
		r.mu.Lock()
		delete(r.of, token)
		r.mu.Unlock()
		of.end()
	}
}

// progressNotification is what is read of a message that may be a report.
type progressNotification struct {
	Method string `json:"method"`
	Params struct {
		Token    string   `json:"progressToken"`
		Progress *float64 `json:"progress"`
		Total    *float64 `json:"total"`
		Message  string   `json:"message"`
	} `json:"params"`
}

// see passes on a report of a call that runs. It ignores every other message.
func (r *reports) see(message []byte) {
	var n progressNotification
	if json.Unmarshal(message, &n) != nil || n.Method != "notifications/progress" {
		return
	}
	r.mu.Lock()
	of := r.of[n.Params.Token]
	r.mu.Unlock()
	if of == nil {
		return
	}
	if n.Params.Total != nil && *n.Params.Total <= 0 {
		n.Params.Total = nil // it is not known
	}
	text := n.Params.Message
	of.tell(registry.Report{
		Progress: n.Params.Progress, Total: n.Params.Total, Message: legible.Line(text[:min(len(text), maxProgress)]),
	})
}

// tell passes on a report, or holds it if it comes too fast.
func (r *report) tell(p registry.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case r.pace.try():
		r.held = nil
		agent.Report(r.ctx, p)
	default:
		r.held = &p
	}
}

// end passes on the report that is held, and ignores those that come later.
func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.held != nil {
		agent.Report(r.ctx, *r.held)
	}
}
