package mcp

import (
	"context"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// callTool calls a tool. The steps are those of every call: read what is asked for, find the session that the name
// means, have the Invoker run it, and make a result of the outcome.
func (s *Server) callTool(ctx context.Context, r *request) (result, error) {
	req, err := s.readCall(ctx, r)
	if err != nil {
		return result{}, err
	}
	r.Out.NoteCall(req.CallID)
	finish, err := s.follow(r.answer, req.CallID)
	if err != nil {
		return result{}, err
	}
	req.Release = r.TakeBody()
	out, err := s.cfg.Invoker.Invoke(ctx, req)
	finish()
	return s.resultOf(&out, err)
}

// readCall turns a request into one for the Invoker.
func (s *Server) readCall(ctx context.Context, r *request) (agent.Request, error) {
	name, ok := r.params.text("name")
	if !ok || name == "" {
		return agent.Request{}, invalidParams("The field \"name\" must be a string.")
	}
	args := r.params.get("arguments")
	if args.String() == "null" {
		args = strictjson.Value{}
	}
	if !args.IsZero() && !args.IsObject() {
		return agent.Request{}, invalidParams("The field \"arguments\" must be a JSON object.")
	}
	if len(r.Body) > args.Len()+spareBody {
		args = args.Clone()
	}
	req := agent.Request{
		Endpoint: agent.EndpointMCP, CallID: registry.NewCallID(), Caller: r.Caller, Args: args,
	}
	var err error
	req.Tool, req.Target, err = s.resolve(ctx, r, name)
	return req, err
}

// spareBody is how many bytes beside its arguments a body may keep in memory until the call is recorded. Arguments in a
// longer body are copied.
const spareBody = 4 << 10

// resultOf makes a result of what became of a call. What a caller's model can mend, or has to know, is a result with
// isError; that the call did not run as it should is an error.
func (s *Server) resultOf(out *agent.Outcome, err error) (result, error) {
	if err != nil {
		e := registry.AsError(err)
		if e.Code != registry.CodeInvalidArguments {
			return result{}, err
		}
		return result{members: appendInvalid(nil, e)}, nil
	}
	return result{members: appendContent(nil, out)}, nil
}
