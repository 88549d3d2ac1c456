package agent

import (
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

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
	span.End(failureOf(err))
}

// failureOf returns the code of an error for a span; empty: no error.
func failureOf(err error) string {
	if err == nil {
		return ""
	}
	return string(registry.AsError(err).Code)
}
