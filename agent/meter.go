package agent

import (
	"time"

	"github.com/farhand/farhand/registry"
)

// Endpoint is where a call came in.
type Endpoint string

// The endpoints. Empty means none of them.
const (
	EndpointAPI  Endpoint = "api"  // the routes that call a tool
	EndpointV1   Endpoint = "v1"   // a turn of a chat completion
	EndpointChat Endpoint = "chat" // a turn of a conversation that the gateway keeps
	EndpointMCP  Endpoint = "mcp"  // a client of MCP
)

// CallRoute is the way a call took to its tool.
type CallRoute string

// The routes.
const (
	RouteNone      CallRoute = "none"    // no tool was found
	RouteLocalTool CallRoute = "builtin" // to a local tool, in the gateway
	RouteLocal     CallRoute = "local"   // to a device on this pod
	RouteRemote    CallRoute = "remote"  // to a device on another pod
)

// Outcomes of calls that are no failures of the gateway. Every other outcome is a registry.Code.
const (
	OutcomeSucceeded = "succeeded" // the tool ran and succeeded
	OutcomeFailed    = "failed"    // the tool ran and said that it failed
	OutcomeReplayed  = "replayed"  // an earlier call with the same idempotency key has, or will have, the answer
)

// CallEnd says how a call ended.
type CallEnd struct {
	Endpoint Endpoint
	Route    CallRoute // as far as it was known when the call was admitted
	Outcome  string
	Duration time.Duration // since it was asked for

	Tenant, User, Tool string // who asked, and for what
	Key                string // auth.Identity.Account of who asked
	BytesIn, BytesOut  int    // of the arguments and the output
}

// Meter counts calls. Its method returns at once and is safe for concurrent use. It hears of every call once, on the
// pod that was asked: of a call that outlives its request when the call has ended, also if nobody waited.
type Meter interface{ CallEnded(CallEnd) }

func (i *Invoker) count(req *Request, took time.Duration, res registry.Result, err error) {
	if i.cfg.Meter == nil {
		return
	}
	end := CallEnd{
		Endpoint: req.Endpoint, Route: req.where, Outcome: OutcomeFailed, Duration: took,
		Tenant: req.Caller.Tenant, User: req.Caller.User, Key: req.Caller.Account(), Tool: req.Tool,
		BytesIn:  req.argsBytes,
		BytesOut: len(res.Output) + res.Structured.Len() + int(registry.InlineSize(res.Parts)),
	}
	switch {
	case err != nil:
		end.Outcome = string(registry.AsError(err).Code)
	case res.Success:
		end.Outcome = OutcomeSucceeded
	}
	if end.Route == "" {
		end.Route = RouteNone
	}
	i.cfg.Meter.CallEnded(end)
}

// countReplay counts a request that gets the answer of an earlier call.
func (i *Invoker) countReplay(req *Request) {
	req.counted = true
	if i.cfg.Meter != nil {
		i.cfg.Meter.CallEnded(CallEnd{Endpoint: req.Endpoint, Route: req.where, Outcome: OutcomeReplayed})
	}
}

// routeOf returns the way a prepared call takes.
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
