package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Names in _meta of calls and their results that are specific to this gateway.
const (
	metaTimeout     = "farhand/timeout_ms"
	metaIdempotency = "farhand/idempotency_key"
	metaExact       = "farhand/exact"
	metaQueue       = "farhand/queue"
	metaCall        = "farhand/call_id"
)

func (s *Server) callTool(ctx context.Context, r *request) (result, error) {
	name, args, err := r.readCall()
	if err != nil {
		return result{}, err
	}
	if r.Scope.Search {
		return s.callSearch(ctx, r, name, args)
	}
	tool, at, err := s.resolve(ctx, r, name)
	if err != nil {
		return result{}, err
	}
	return s.call(ctx, r, agent.Request{Tool: tool, Target: at, Args: args})
}

// call runs a call whose tool is known: it reads the options, lets the Invoker run the call, and converts the outcome
// to a result.
func (s *Server) call(ctx context.Context, r *request, req agent.Request) (res result, err error) {
	by := r.asker()
	ctx, span := s.startSpan(ctx, r, by.Who.Tenant, req.Tool)
	defer func() {
		if span.Records() && err != nil {
			span.Text(trace.ErrorType, string(registry.AsError(err).Code))
		}
		span.End("")
	}()
	req.CallID, req.Caller, req.Model, req.Endpoint = registry.NewCallID(), by.Who, by.Model, by.Endpoint
	if err := s.readCallOptions(ctx, r, &req); err != nil {
		return result{}, err
	}
	finish, err := s.follow(r.answer, req.CallID)
	if err != nil {
		return result{}, err
	}
	finish = sync.OnceFunc(finish)
	defer finish()
	release := r.TakeBody()
	ctx, leave, err := s.running.enter(ctx, r, release != nil)
	if err != nil {
		if release != nil {
			release()
		}
		return result{}, err
	}
	defer leave()
	asked := req
	r.args, req.Args = req.Args, registry.JSON{} // so that forgetBody can drop them
	if asked.Release = release; release != nil {
		asked.Forget = r.forgetBody
	}
	out, err := s.cfg.Invoker.Invoke(ctx, asked)
	finish() // while the call can still be cancelled
	if context.Cause(ctx) == errCancelled {
		return result{}, errCancelled
	}
	return s.convert(ctx, r, &req, &out, err)
}

// readCallOptions reads the options of a call, and what an earlier request of a suspended call has left.
func (s *Server) readCallOptions(ctx context.Context, r *request, req *agent.Request) error {
	if err := r.readOptions(req); err != nil {
		return err
	}
	if err := s.resume(ctx, r, req); err != nil {
		return err
	}
	if req.Resume == nil && r.takesTasks() {
		req.AsyncIfLonger = s.cfg.TaskAfter
	}
	r.answer.noteCall(req.CallID)
	return nil
}

// convert converts the outcome of a call to a result: an answer, a question to the caller, or a task.
func (s *Server) convert(
	ctx context.Context, r *request, req *agent.Request, out *agent.Outcome, err error,
) (result, error) {
	if req.Target.Viewer == registry.NoUser && errors.Is(err, registry.CodeToolNotFound) {
		e := *registry.AsError(err)
		e.Message += " Devices of users are called by names with the session, as tools/list shows them."
		err = &e
	}
	if out.CallID != req.CallID { // a replayed outcome has its own id
		r.answer.noteCall(out.CallID)
	}
	switch {
	case err == nil && out.Suspended != nil:
		req.Args = r.args
		return s.ask(ctx, r, req, out.Suspended)
	case err == nil && out.Async && r.takesTasks():
		return s.task(ctx, r, out)
	case err == nil && out.Async:
		return r.queuedResult(out), nil
	default:
		return r.resultOf(out, r.givenUp(err))
	}
}

// startSpan begins the span of a call. By the convention of MCP its parent is named in _meta, else it is the request's.
func (s *Server) startSpan(ctx context.Context, r *request, tenant, tool string) (context.Context, trace.Span) {
	parent, _ := r.meta.text("traceparent")
	if parent == "" {
		ctx, span := trace.Start(ctx, trace.Server, r.method, tool)
		return ctx, span.Text(trace.MCPMethod, r.method).Text(trace.Tool, tool)
	}
	state, _ := r.meta.text("tracestate")
	ctx, span := s.cfg.Tracer.Serve(ctx, trace.Server, r.method+" "+tool, parent, state,
		func() bool { return s.cfg.MayTrace(tenant) })
	return ctx, span.Text(trace.MCPMethod, r.method).Text(trace.Tool, tool)
}

func (r *request) readCall() (name string, args registry.JSON, err error) {
	if name, _ = r.params.text("name"); name == "" {
		return "", args, invalidParams("The field \"name\" must be a string.")
	}
	args = r.params.get("arguments")
	if string(args.Raw()) == "null" {
		args = registry.JSON{}
	}
	if !args.IsZero() && !args.IsObject() {
		return "", args, invalidParams("The field \"arguments\" must be a JSON object.")
	}
	if len(r.Body) > args.Len()+spareBody {
		args = args.Clone()
	}
	return name, args, nil
}

// forgetBody drops the body of a long request while its call runs. It copies what the answer needs.
func (r *request) forgetBody() {
	exact := r.meta.get(metaExact).Clone()
	r.message = message{id: bytes.Clone(r.id), method: r.method}
	if !exact.IsZero() {
		r.meta = fields{{Name: []byte(metaExact), Value: exact.Raw()}}
	}
	r.Body, r.args, r.capabilities = nil, registry.JSON{}, strictjson.Value{}
}

// spareBody is how many bytes besides its arguments a body may keep in memory until the call is recorded. Arguments in
// a longer body are copied.
const spareBody = 4 << 10

// readOptions reads the options that are specific to this gateway: the timeout and the idempotency key of the call.
func (r *request) readOptions(req *agent.Request) error {
	if v := r.meta.get(metaTimeout); !v.IsZero() {
		ms, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil || ms <= 0 {
			return invalidParams("_meta[%q] must be a whole number of milliseconds above zero.", metaTimeout)
		}
		req.Timeout = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	if !r.meta.get(metaIdempotency).IsZero() {
		if req.IdempotencyKey, _ = r.meta.text(metaIdempotency); req.IdempotencyKey == "" {
			return invalidParams("_meta[%q] must be a string that is not empty.", metaIdempotency)
		}
	}
	if v := r.meta.get(metaQueue); !v.IsZero() {
		var q struct {
			TTL int64 `json:"ttl_ms"`
		}
		if json.Unmarshal(v.Raw(), &q) != nil || q.TTL <= 0 || q.TTL > math.MaxInt64/int64(time.Millisecond) {
			return invalidParams("_meta[%q] must be an object with ttl_ms, a whole number above zero.", metaQueue)
		}
		req.Queue = time.Duration(q.TTL) * time.Millisecond
	} else if req.Target.SessionID != "" {
		req.Queue = r.Queue
	}
	_, err := r.exact()
	return err
}

// exact reports whether the client also wants the tool's output byte for byte.
func (r *request) exact() (bool, error) {
	switch v := r.meta.get(metaExact); v.String() {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, invalidParams("_meta[%q] must be true or false.", metaExact)
	}
}

// resultOf converts the outcome of a call to a result. Errors that the caller's model can correct or must know are
// results with isError. A call that did not run correctly is an error.
func (r *request) resultOf(out *agent.Outcome, err error) (result, error) {
	res := result{meta: strictjson.AppendString([]byte(`"`+metaCall+`":`), out.CallID)}
	switch {
	case err == nil:
		res.members = r.content(out)
	case registry.AsError(err).Code == registry.CodeInvalidArguments:
		res.members = invalidContent(registry.AsError(err))
	default:
		return result{}, err
	}
	return res, nil
}

// queuedResult tells a client without tasks that its call waits.
func (r *request) queuedResult(out *agent.Outcome) result {
	text := "The call waits for its device, which sleeps."
	if out.Position > 0 {
		text = out.QueueText() + " GET /api/calls/" + out.CallID + " returns its outcome."
	}
	res := result{meta: strictjson.AppendString([]byte(`"`+metaCall+`":`), out.CallID)}
	res.members = append(strictjson.AppendString([]byte(`"content":[{"type":"text","text":`), text), "}]"...)
	return res
}

const (
	// progressPause is the pause between two reads of a call's reports. It grows up to progressIdle while there are
	// none. The reports are read from the call's log, because pods do not send each other reports of running calls.
	progressPause = 100 * time.Millisecond
	progressIdle  = time.Second

	// progressRead bounds one read of the log.
	progressRead = 5 * time.Second
)

type progress struct {
	answer *answer
	log    Calls
	callID string
	token  json.RawMessage
	after  string  // the last line read
	last   float64 // the last progress sent
}

// follow forwards the reports of a call until finish is called, which forwards the rest of them. It does nothing
// without a progress token, or if too many streams are open.
func (s *Server) follow(a *answer, callID string) (finish func(), err error) {
	token := a.meta.get("progressToken")
	switch {
	case token.IsZero() || a.timer == nil:
		return func() {}, nil
	case !isID(token.Raw()):
		return nil, invalidParams("_meta.progressToken must be a string or a whole number, of at most %d bytes.", maxID)
	}
	release, err := a.Out.Enter()
	if err != nil {
		return func() {}, nil
	}
	p := &progress{answer: a, log: s.cfg.Calls, callID: callID, token: bytes.Clone(token.Raw()), last: math.Inf(-1)}
	ctx, stop := context.WithCancel(a.ctx)
	var following sync.WaitGroup
	following.Go(func() { p.followUntil(ctx) })
	return func() {
		defer release()
		stop()
		following.Wait()
		p.read(a.ctx) // the answer waits for the reports before it
	}, nil
}

func (p *progress) followUntil(ctx context.Context) {
	for next := progressPause; pause.For(ctx, next) == nil; {
		if next = min(next*2, progressIdle); p.read(ctx) {
			next = progressPause
		}
	}
}

// read forwards the new reports, and reports whether there were any.
func (p *progress) read(ctx context.Context) (some bool) {
	ctx, cancel := context.WithTimeout(ctx, progressRead)
	defer cancel()
	for {
		events, _, _ := p.log.Events(ctx, p.answer.Caller.Tenant, p.callID, p.after) // a quick call has no record yet
		for _, e := range events {
			if p.after = e.ID; e.Type != registry.CallEventState {
				some = true
				if message := p.appendProgress(nil, e); message != nil {
					p.answer.notify(message)
				}
			}
		}
		if len(events) < registry.EventPage {
			return some
		}
	}
}

// appendProgress appends a notification of one report. MCP demands that progress grows with each. If the device reports
// none, or no greater one, it is incremented by one. It appends nothing if the last number is too large to increment.
func (p *progress) appendProgress(b []byte, e registry.CallEvent) []byte {
	switch {
	case e.Progress != nil && *e.Progress > p.last:
		p.last = *e.Progress
	case math.IsInf(p.last, -1):
		p.last = 0
	case p.last+1 > p.last:
		p.last++
	default:
		return nil
	}
	b = append(b, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	b = strconv.AppendFloat(append(append(b, p.token...), `,"progress":`...), p.last, 'g', -1, 64)
	if e.Total != nil {
		b = strconv.AppendFloat(append(b, `,"total":`...), *e.Total, 'g', -1, 64)
	}
	text := e.Message + e.Chunk
	if e.Message != "" && e.Chunk != "" {
		text = e.Message + "\n" + e.Chunk
	}
	if text != "" {
		b = strictjson.AppendString(append(b, `,"message":`...), textsafe.Clean(text))
	}
	return append(b, "}}"...)
}

// Scope is what a path of the endpoint covers: everything that the identity sees, one user, or one session.
type Scope struct {
	User, Session string

	// Search replaces the list with two tools: one finds tools, the other calls them.
	Search bool
}

func (s Scope) target(viewer string) registry.Target {
	return registry.Target{UserID: s.User, SessionID: s.Session, Viewer: viewer}
}

// hasLocalTools reports whether the scope has the gateway's own tools. They belong to no user and no session.
func (s Scope) hasLocalTools() bool { return s.User == "" && s.Session == "" }

// text describes the scope to a model.
func (s Scope) text() string {
	switch {
	case s.Session != "":
		return "The tools run on one device, the session " + s.Session + "."
	case s.User != "":
		return "The tools run on the devices of the user " + s.User + "."
	default:
		return "The tools run on devices."
	}
}
