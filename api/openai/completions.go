package openai

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// idPrefix is the prefix of the id of a completion. The id of its turn follows.
const idPrefix = "chatcmpl-"

func usageOf(u provider.Usage) wire.CompletionUsage {
	return wire.CompletionUsage{Prompt: u.Input, Completion: u.Output, Total: u.Input + u.Output}
}

// Turns holds what a completion needs to run as a turn.
type Turns struct {
	Queue    time.Duration // how long calls may wait for a sleeping device; zero: not at all
	Agent    chat.Agent
	Sessions Sessions
	// Explain returns why a turn has no answer. ctx is the turn's. aborted says that the turn was aborted deliberately.
	Explain func(ctx context.Context, err error, aborted bool) error
}

// Completion is a parsed request for a completion, ready to run as a turn.
type Completion struct {
	turns Turns
	ask   chat.Completion
	usage bool // the caller wants the usage with a stream
}

// Open resolves the model of a request, and the session whose tools are added: sessionID if it is not empty, otherwise
// the session of the request's user.
func (r *Request) Open(
	ctx context.Context, turns Turns, caller auth.Identity, sessionID string,
) (*Completion, error) {
	ask, err := r.completion, error(nil)
	if ask.Model, err = configuredModel(turns.Agent.Models(), ask.Model); err != nil {
		return nil, err
	}
	if ask.Key, err = r.session(ctx, turns.Sessions, caller, sessionID); err != nil {
		return nil, err
	}
	ask.Caller, ask.Turn, ask.Queue = caller, registry.NewCallID(), turns.Queue
	return &Completion{turns, ask, r.includeUsage}, nil
}

// Answer runs the turn to its end and returns the answer, to be encoded as JSON.
func (o *Completion) Answer(ctx context.Context) (any, error) {
	aborted := false
	var thinking strings.Builder
	reply, calls, err := o.turns.Agent.Complete(ctx, o.ask, func(e chat.Event) {
		aborted = e.Type == chat.EventAborted
		if e.Type == chat.EventThinking {
			thinking.WriteString(e.Content)
		}
	})
	if err != nil {
		return nil, turnFailure(o.turns.Explain(ctx, err, aborted), reply)
	}
	m := wire.CompletionMessage{Role: "assistant", Reasoning: thinking.String()}
	said := strings.TrimSuffix(reply.FullResponse, reply.Refusal)
	if said != "" || len(calls) == 0 && reply.Refusal == "" {
		m.Content = &said
	}
	if reply.Refusal != "" {
		m.Refusal = &reply.Refusal
	}
	for _, call := range calls {
		m.ToolCalls = append(m.ToolCalls, toolCallOf(call))
	}
	return wire.Completion{
		ID: idPrefix + o.ask.Turn, Object: "chat.completion", Created: time.Now().Unix(), Model: o.ask.Model,
		Choices: []wire.CompletionChoice{{Message: m, FinishReason: finishReason(reply, calls)}},
		Usage:   usageOf(reply.Usage),
	}, nil
}

func toolCallOf(call provider.ToolCall) wire.CompletionCall {
	return wire.CompletionCall{
		ID: call.ID, Type: "function", Function: wire.CompletionFunction{Name: call.Name, Arguments: call.Args},
	}
}

// finishReason returns why the answer ends. Tool calls are the reason only if the caller must run them. A refusal in
// the model's words is a normal answer, as at OpenAI, whose clients treat the other reason as a failure.
func finishReason(reply chat.Reply, calls []provider.ToolCall) string {
	switch {
	case len(calls) > 0:
		return string(provider.StopToolCalls)
	case reply.Stop == provider.StopLength || reply.Stop == provider.StopRefusal && !reply.Refused():
		return string(reply.Stop)
	default:
		return string(provider.StopEnd)
	}
}

const (
	// MaxCandidates bounds how many sessions an error lists when a user has several.
	MaxCandidates = 20

	// lookupTimeout bounds the search for the session of a completion.
	lookupTimeout = 10 * time.Second
)

// Sessions finds connected sessions.
type Sessions interface {
	// Connected returns a session that the caller may talk to. It fails with registry.CodeSessionNotFound or
	// registry.CodeNotConnected.
	Connected(ctx context.Context, caller auth.Identity, id string) (registry.Session, error)
	// OfUser returns the connected sessions of a user, at most MaxCandidates. It reads a bounded number of sessions, so
	// callers in a very large fleet need the header.
	OfUser(ctx context.Context, caller auth.Identity, user string) ([]registry.Session, error)
}

// session returns the session whose tools are added to a completion: the one with that id, otherwise the session of the
// user in the body. The key has no session if there is none, or if no tools are wanted. If the caller's credentials
// name a user, no other user is accepted.
func (r *Request) session(
	ctx context.Context, sessions Sessions, caller auth.Identity, id string,
) (registry.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	none := registry.Key{Tenant: caller.Tenant}
	switch {
	case id != "":
		s, err := sessions.Connected(ctx, caller, id)
		if err != nil || r.noTools() {
			return none, err
		}
		return s.Key, nil
	case r.user == "" || r.noTools():
		return none, nil
	case caller.Viewer() != "" && caller.Viewer() != r.user:
		return none, &paramError{param: "user", error: registry.Errorf(registry.CodeForbidden,
			"The token is another user's. Leave \"user\" out, or name the user of the token.")}
	}
	found, err := sessions.OfUser(ctx, caller, r.user)
	switch {
	case err != nil:
		return none, err
	case len(found) == 1:
		return found[0].Key, nil
	case len(found) > 1:
		e := registry.Errorf(registry.CodeAmbiguousTarget,
			"Several sessions of this user are connected. Name one in the header %s.", HeaderSession)
		for _, s := range found {
			e.Candidates = append(e.Candidates, registry.Candidate{
				SessionID: s.Key.Session, DeviceID: s.DeviceID, UserID: s.UserID, Name: s.Name,
			})
		}
		return none, &paramError{param: "user", error: e}
	}
	s, err := sessions.Connected(ctx, caller, r.user)
	switch {
	case errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeNotConnected):
		return none, nil
	case err != nil:
		return none, err
	case s.UserID != "" && s.UserID != r.user: // a device can choose a user's name as its id
		return none, nil
	}
	return s.Key, nil
}

// stream writes a completion while its turn runs.
type stream struct {
	*ssewriter.TurnStream
	*Completion
	created int64
	begun   bool // the role was sent
}

// Stream runs the turn and writes its events. Text and thinking of all iterations are sent immediately. Calls of the
// caller's own tools are sent at the end, when they are complete.
func (o *Completion) Stream(ctx context.Context, t *ssewriter.TurnStream) (end func(), failure error) {
	s, aborted := &stream{TurnStream: t, Completion: o, created: time.Now().Unix()}, false
	reply, calls, err := o.turns.Agent.Complete(ctx, o.ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventChunk:
			if e.Refusal {
				s.sendDelta(wire.CompletionDelta{Refusal: &e.Content})
				return
			}
			s.sendDelta(wire.CompletionDelta{Content: &e.Content})
		case chat.EventThinking:
			s.sendDelta(wire.CompletionDelta{Reasoning: e.Content})
		case chat.EventToolCall, chat.EventToolResult: // a device's tool, which OpenAI's format cannot show
			s.KeepAlive()
		case chat.EventAborted:
			aborted = true
		}
	})
	if err != nil {
		failure = turnFailure(o.turns.Explain(ctx, err, aborted), reply)
		return func() {
			_, body := errorBodyOf(failure)
			t.Send("", body) // without [DONE], which would mark the answer as complete
		}, failure
	}
	return func() { s.finish(reply, calls) }, nil
}

// finish sends the tool calls, the finish reason and the usage.
func (s *stream) finish(reply chat.Reply, calls []provider.ToolCall) {
	for i, call := range calls {
		shown := toolCallOf(call)
		shown.Index = &i
		s.sendDelta(wire.CompletionDelta{ToolCalls: []wire.CompletionCall{shown}})
	}
	reason := finishReason(reply, calls)
	s.sendRole()
	s.sendChunk(nil, wire.CompletionChunkChoice{FinishReason: &reason})
	if s.usage {
		counted := usageOf(reply.Usage)
		s.sendChunk(&counted)
	}
	s.SendText("[DONE]")
}

func (s *stream) sendDelta(d wire.CompletionDelta) {
	s.sendRole()
	s.sendChunk(nil, wire.CompletionChunkChoice{Delta: d})
}

// sendRole sends the role before the first text.
func (s *stream) sendRole() {
	if s.begun {
		return
	}
	s.begun = true
	nothing := ""
	s.sendChunk(nil, wire.CompletionChunkChoice{Delta: wire.CompletionDelta{Role: "assistant", Content: &nothing}})
}

func (s *stream) sendChunk(counted *wire.CompletionUsage, choices ...wire.CompletionChunkChoice) {
	piece := wire.CompletionChunk{
		ID: idPrefix + s.ask.Turn, Object: "chat.completion.chunk", Created: s.created, Model: s.ask.Model,
		Choices: append([]wire.CompletionChunkChoice{}, choices...),
	}
	if s.usage { // null in all chunks but the last
		piece.Usage = &counted
	}
	s.Send("", piece)
}
