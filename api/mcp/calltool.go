package mcp

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
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
