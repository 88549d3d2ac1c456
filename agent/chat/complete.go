package chat

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Complete implements Agent. The turn is that of Ask, with the same limits, but without a lock and without memory: only
// this turn knows the results of its tool calls. The system prompt is the caller's alone, with the system messages
// among Messages.
//
// A call of one of the caller's own tools ends the turn and is returned. Calls of the session's tools in the same
// answer run first. Their arguments and results are kept for a while, and put back when the conversation returns with
// the results of the returned calls, so nothing runs twice. A tool of the caller hides one of the session with the same
// name.
func (e *Engine) Complete(ctx context.Context, c Completion, emit func(Event)) (Reply, []provider.ToolCall, error) {
	out, began := newEmitter(emit), time.Now()
	model, err := e.model(c.Model)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	leave, err := e.admit(c.Caller)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	defer leave()
	ctx, cancel := e.within(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, e.cfg.Limits.Turn, errTurnTime)
	defer stop()
	scope := agent.SessionContext{Key: c.scopeKey(), Stateless: true, Caller: c.Caller, Channel: ChannelCompletion}
	kept := continuations{
		store: e.cfg.Store, holder: registry.ContinuationOwner{Tenant: scope.Key.Tenant, User: c.Caller.Scope()},
		ttl: e.cfg.Limits.Continuation, spent: e.newSpending(c.Caller),
		limit: e.cfg.Limits.ContextTokens * bytesPerToken, log: e.cfg.Log,
	}
	if c.Messages, err = kept.restore(ctx, c.Messages); err != nil {
		return Reply{}, nil, out.complete("", failure(ctx, e.cfg.Limits, err))
	}
	l, err := e.newCompletion(c, model, scope, out)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	l.continuations = kept
	info := TurnInfo{Key: scope.Key, Caller: c.Caller, Channel: scope.Channel}
	reply, err := e.carryOut(ctx, info, l, began, l.run)
	reply.MessageCount = len(c.Messages)
	return reply, l.returned, out.complete(reply.FullResponse, err)
}

// model returns the model of that name.
func (e *Engine) model(name string) (provider.Model, error) {
	for _, m := range e.cfg.Models {
		if name == "" || m.Name() == name {
			return m, nil
		}
	}
	return nil, &Error{
		Code:    CodeModelNotFound,
		Message: fmt.Sprintf("There is no model %q. There are: %s.", name, strings.Join(e.Models(), ", ")),
	}
}

// scopeKey returns the session whose tools join in, in the caller's tenant.
func (c Completion) scopeKey() registry.Key {
	key := c.Key
	if key.Tenant == "" {
		key.Tenant = c.Caller.Tenant
	}
	return key
}

func (e *Engine) newCompletion(
	c Completion, model provider.Model, scope agent.SessionContext, out *emitter,
) (*loop, error) {
	l := &loop{
		limits: e.cfg.Limits, log: e.cfg.Log, model: model, out: out,
		turn: cmp.Or(c.Turn, uuid.NewString()),
		own:  make(map[string]bool, len(c.Tools)), base: provider.Request{
			System: c.System, Tools: c.Tools, MaxTokens: c.MaxTokens, Temperature: c.Temperature, Stop: c.Stop,
			Options: c.Options,
		},
		choice: c.Choice,
	}
	if c.Choice.Mode == provider.ChoiceNone {
		l.base.Tools = nil
	}
	for _, t := range l.base.Tools {
		l.own[t.Name] = true
	}
	for _, m := range c.Messages {
		if m.Role == provider.RoleSystem {
			l.base.System = strings.TrimPrefix(l.base.System+"\n\n"+m.Content, "\n\n")
			continue
		}
		l.history = append(l.history, m)
	}
	if len(l.history) == 0 && l.base.System == "" {
		return nil, &Error{Code: CodeNoUserMessage, Message: "There is nothing to answer: there are no messages."}
	}
	l.given, l.mark = len(l.history), newMark()
	if l.tools = (noTools{}); c.Choice.Mode != provider.ChoiceNone {
		l.tools = e.open(scope)
	}
	return l, nil
}
