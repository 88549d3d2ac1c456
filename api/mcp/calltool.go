package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// Names in _meta of calls and their results, which are this gateway's own.
const (
	metaTimeout     = "farhand/timeout_ms"
	metaIdempotency = "farhand/idempotency_key"
	metaExact       = "farhand/exact"
	metaCall        = "farhand/call_id"
)

// callTool calls a tool.
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

// call runs a call whose tool is known. The steps are those of every call: read how it is to run, have the Invoker run
// it, and make a result of the outcome.
func (s *Server) call(ctx context.Context, r *request, req agent.Request) (result, error) {
	by := r.asker()
	req.CallID, req.Caller, req.Model, req.Endpoint = registry.NewCallID(), by.Who, by.Model, by.Endpoint
	if err := r.readOptions(&req); err != nil {
		return result{}, err
	}
	if err := s.resume(ctx, r, &req); err != nil {
		return result{}, err
	}
	if req.Resume == nil && r.takesTasks() {
		req.AsyncOver = s.cfg.TaskAfter
	}
	r.answer.noteCall(req.CallID)
	finish, err := s.follow(r.answer, req.CallID)
	if err != nil {
		return result{}, err
	}
	release := r.TakeBody()
	ctx, leave, err := s.running.enter(ctx, r, release != nil)
	if err != nil {
		finish()
		if release != nil {
			release()
		}
		return result{}, err
	}
	defer leave()
	asked := req
	r.args, req.Args = req.Args, registry.JSON{} // so that nothing here keeps them when forgetBody has been called
	if asked.Release = release; release != nil {
		asked.Forget = r.forgetBody
	}
	out, err := s.cfg.Invoker.Invoke(ctx, asked)
	finish()
	if req.Target.Viewer == registry.NoUser && errors.Is(err, registry.CodeToolNotFound) {
		e := *registry.AsError(err)
		e.Message += " Devices of users are called by names with the session, as tools/list shows them."
		err = &e
	}
	if context.Cause(ctx) == errCancelled {
		return result{}, errCancelled
	}
	if out.CallID != req.CallID { // a replayed one has its own
		r.answer.noteCall(out.CallID)
	}
	switch {
	case err == nil && out.Suspended != nil:
		req.Args = r.args
		return s.ask(ctx, r, &req, out.Suspended)
	case err == nil && out.Async:
		return s.task(ctx, r, &out)
	default:
		return r.resultOf(&out, r.givenUp(err))
	}
}

// readCall reads which tool is called, and with what.
func (r *request) readCall() (name string, args registry.JSON, err error) {
	name, ok := r.params.text("name")
	if !ok || name == "" {
		return "", args, invalidParams("The field \"name\" must be a string.")
	}
	args, err = readObject(r.params, "arguments")
	if len(r.Body) > args.Len()+spareBody {
		args = args.Clone()
	}
	return name, args, err
}

// forgetBody lets go of the body of a long request, whose call goes on without it: what the answer needs is copied.
func (r *request) forgetBody() {
	exact := r.meta.get(metaExact).Clone()
	r.message = message{id: bytes.Clone(r.id), method: r.method}
	if !exact.IsZero() {
		r.meta = fields{{Name: []byte(metaExact), Value: exact.Raw()}}
	}
	r.Body, r.args, r.capabilities = nil, registry.JSON{}, strictjson.Value{}
}

// readObject returns a member that is an object, none if it is missing.
func readObject(from fields, name string) (registry.JSON, error) {
	v := from.get(name)
	switch {
	case v.String() == "null":
		return registry.JSON{}, nil
	case !v.IsZero() && !v.IsObject():
		return registry.JSON{}, invalidParams("The field %q must be a JSON object.", name)
	default:
		return v, nil
	}
}

// spareBody is how many bytes beside its arguments a body may keep in memory until the call is recorded. Arguments in a
// longer body are copied.
const spareBody = 4 << 10

// readOptions reads what only this gateway knows: how long a call may take, and the key by which a repetition is told.
func (r *request) readOptions(req *agent.Request) error {
	if v := r.meta.get(metaTimeout); !v.IsZero() {
		ms, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil || ms <= 0 {
			return invalidParams("_meta[%q] must be a whole number of milliseconds above zero.", metaTimeout)
		}
		req.Timeout = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	if v := r.meta.get(metaIdempotency); !v.IsZero() {
		key, ok := r.meta.text(metaIdempotency)
		if !ok || key == "" {
			return invalidParams("_meta[%q] must be a string that is not empty.", metaIdempotency)
		}
		req.IdempotencyKey = key
	}
	_, err := r.exact()
	return err
}

// exact reports whether the client wants what the tool returned byte for byte, too.
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

// resultOf makes a result of what became of a call. What a caller's model can mend, or has to know, is a result with
// isError; that the call did not run as it should is an error.
func (r *request) resultOf(out *agent.Outcome, err error) (result, error) {
	res := result{meta: strictjson.AppendString([]byte(`"`+metaCall+`":`), out.CallID)}
	if err == nil {
		res.members = r.appendContent(nil, out)
		return res, nil
	}
	e := registry.AsError(err)
	if e.Code != registry.CodeInvalidArguments {
		return result{}, err
	}
	res.members = appendInvalid(nil, e)
	return res, nil
}

const (
	// progressPause is the pause between two reads of what a call reports, which grows up to progressIdle while it
	// reports nothing. The reports are in the call's log, as pods tell one another nothing else of a running call.
	progressPause = 100 * time.Millisecond
	progressIdle  = time.Second

	// progressRead is how long a read of the log may take.
	progressRead = 5 * time.Second
)

// CallLog is what is read of the reports of running calls. *routing.Calls is one.
type CallLog interface {
	Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error)
}

// progress passes on what a call reports.
type progress struct {
	answer *answer
	log    CallLog
	callID string
	token  json.RawMessage
	after  string  // the last line that was read
	last   float64 // the progress that was told last
}

// follow passes on the reports of a call until finish is called, which passes on the rest of them. Without a token, or
// when too many are followed already, nothing is.
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.followUntil(ctx)
	}()
	return func() {
		defer release()
		stop()
		<-done
		p.read(a.ctx) // an answer waits until the reports before it are in the log
	}, nil
}

func (p *progress) followUntil(ctx context.Context) {
	pause := progressPause
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if pause = min(pause*2, progressIdle); p.read(ctx) {
			pause = progressPause
		}
		timer.Reset(pause)
	}
}

// read passes on the reports that are new. It reports whether there were any.
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

// appendProgress appends a notification of one report. Progress must grow with each, also if the device says nothing of
// it, or the same again: then it is one more. It appends nothing if there is no greater number that differs by one.
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
	text := e.Message
	if e.Chunk != "" {
		if text != "" {
			text += "\n"
		}
		text += e.Chunk
	}
	if text != "" {
		b = strictjson.AppendString(append(b, `,"message":`...), legible.Clean(text))
	}
	return append(b, "}}"...)
}

// Scope is what a path of the endpoint is about: everything of the identity, one user, or one session.
type Scope struct {
	User, Session string

	// Search shows two tools instead of all: one that finds tools, and one that calls them.
	Search bool
}

// target selects the sessions of the scope.
func (s Scope) target(viewer string) registry.Target {
	return registry.Target{UserID: s.User, SessionID: s.Session, Viewer: viewer}
}

// hasLocalTools reports whether the gateway's own tools are in the scope: they belong to no user and no session.
func (s Scope) hasLocalTools() bool { return s.User == "" && s.Session == "" }

// text says for a model what the scope is.
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
