package agent

import (
	"cmp"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Endpoint is the API through which a call arrived.
type Endpoint string

// The endpoints. The empty Endpoint is none of them.
const (
	EndpointAPI  Endpoint = "api"  // the routes that call a tool
	EndpointV1   Endpoint = "v1"   // a turn of a chat completion
	EndpointChat Endpoint = "chat" // a turn of a conversation that the gateway keeps
	EndpointMCP  Endpoint = "mcp"  // a client of MCP
)

// CallRoute is the path of a call to its tool.
type CallRoute string

// The routes.
const (
	RouteNone      CallRoute = "none"    // no tool was found
	RouteLocalTool CallRoute = "builtin" // to a local tool, in the gateway
	RouteLocal     CallRoute = "local"   // to a device on this pod
	RouteRemote    CallRoute = "remote"  // to a device on another pod
)

// Outcomes of calls that the gateway handled without an error. Every other outcome is a registry.Code.
const (
	OutcomeSucceeded = "succeeded" // the tool ran and succeeded
	OutcomeFailed    = "failed"    // the tool ran and reported a failure
	OutcomeReplayed  = "replayed"  // an earlier call with the same idempotency key has, or will have, the answer
)

// CallEnd describes how a call ended.
type CallEnd struct {
	Endpoint Endpoint
	Route    CallRoute // as far as known when the call was admitted
	Outcome  string
	Duration time.Duration // since the request

	Tenant, User, Tool string      // the caller and the tool
	Key                string      // auth.Identity.Account of the caller
	Owner              share.Owner // of budgets: the caller
	BytesIn, BytesOut  int         // of the arguments and the output
	TraceID            string      // of a recorded trace; empty: none
}

// Meter counts calls: each once, when it ends, on the pod that received the request. CallEnded must not block and must
// be safe for concurrent use.
type Meter interface{ CallEnded(CallEnd) }

func (i *Invoker) count(req *Request, took time.Duration, res registry.Result, err error) {
	if i.cfg.Meter == nil {
		return
	}
	end := CallEnd{
		Endpoint: req.Endpoint, Route: cmp.Or(req.where, RouteNone), Outcome: OutcomeFailed, Duration: took,
		Tenant: req.Caller.Tenant, User: req.Caller.User, Key: req.Caller.Account(), Tool: req.Tool,
		Owner:    req.Caller.Owner(),
		BytesIn:  req.argsBytes,
		BytesOut: len(res.Output) + res.Structured.Len() + int(registry.InlineSize(res.Parts)),
	}
	if req.traced {
		end.TraceID = req.trace.String()
	}
	switch {
	case err != nil:
		end.Outcome = string(registry.AsError(err).Code)
	case res.Success:
		end.Outcome = OutcomeSucceeded
	}
	i.cfg.Meter.CallEnded(end)
}

func (i *Invoker) routeOf(p *prepared) CallRoute {
	switch {
	case p.local != nil:
		return RouteLocalTool
	case p.route.Session.Key.Session == "":
		return RouteNone
	case p.route.Session.Pod == i.cfg.Pod:
		return RouteLocal
	default:
		return RouteRemote
	}
}

// operationTool is the operation of a call's span, by the semantic conventions of GenAI.
const operationTool = "execute_tool"

// endSpan ends the span of a call. It says nothing of arguments and results.
func endSpan(span trace.Span, req *Request, out *Outcome, err error) {
	kind := "function" // of the device
	if req.where == RouteLocalTool {
		kind = "extension" // of the gateway
	}
	span.Text(trace.Operation, operationTool).Text(trace.Tool, req.Tool).Text(trace.ToolCall, out.CallID)
	span.Text(trace.ToolType, kind).Text(trace.Endpoint, string(req.Endpoint)).Text(trace.Route, string(req.where))
	span.Text(trace.Device, out.Session.Key.Session).Text(trace.Turn, req.Turn)
	ended := !out.Async && out.Suspended == nil
	if err == nil && ended && !out.Result.Success {
		span.End(trace.ToolFailed)
		return
	}
	span.End(string(registry.CodeOf(err)))
}
