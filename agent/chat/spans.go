package chat

import (
	"errors"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/trace"
)

// Names in the spans of turns, by the semantic conventions of GenAI. Spans have token counts and never content.
const (
	operationTurn  = "invoke_agent"
	operationModel = "chat"
	agentName      = "farhand"
)

func endTurnSpan(span trace.Span, info TurnInfo, r Reply, err error) {
	span.Text(trace.Operation, operationTurn).Text(trace.Agent, agentName).Text(trace.Turn, info.Turn)
	span.Text(trace.Model, info.Model)
	if info.Channel == ChannelChat {
		span.Text(trace.Session, info.Key.Session)
	}
	countTokens(span, r.Usage)
	failure := ""
	if failed, ok := errors.AsType[*Error](err); ok {
		failure = failed.Code
	} else if err != nil {
		failure = string(OutcomeAborted)
	}
	span.End(failure)
}

func endModelSpan(span trace.Span, m provider.Model, a provider.Answer, err error) {
	span.Text(trace.Operation, operationModel).Text(trace.Model, m.Name()).Texts(trace.Finish, string(a.Stop))
	if v, ok := m.(interface{ Vendor() string }); ok {
		span.Text(trace.Provider, v.Vendor())
	}
	countTokens(span, a.Usage)
	failure := ""
	if failed, ok := errors.AsType[*provider.Error](err); ok {
		failure = string(failed.Kind)
	} else if err != nil {
		failure = string(OutcomeAborted)
	}
	span.End(failure)
}

// countTokens sets the tokens, unless the provider has counted none.
func countTokens(span trace.Span, u provider.Usage) {
	if u.Input+u.Output > 0 {
		span.Number(trace.InputCount, int64(u.Input)).Number(trace.OutputCount, int64(u.Output))
	}
}
