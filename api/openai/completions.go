package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/jsonbody"
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
	ask.Caller, ask.Turn = caller, registry.NewCallID()
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
	// maxCandidates bounds how many sessions an error lists when a user has several.
	maxCandidates = 20

	// lookupTimeout bounds the search for the session of a completion.
	lookupTimeout = 10 * time.Second
)

// Sessions finds connected sessions.
type Sessions interface {
	// Connected returns a session that the caller may talk to. It fails with registry.CodeSessionNotFound or
	// registry.CodeNotConnected.
	Connected(ctx context.Context, caller auth.Identity, id string) (registry.Entry, error)
	// Each visits the sessions that match q. It fails if there are too many for one answer.
	Each(ctx context.Context, q registry.Query, visit func(registry.Entry)) error
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
		e, err := sessions.Connected(ctx, caller, id)
		if err != nil || r.noTools() {
			return none, err
		}
		return e.Session.Key, nil
	case r.user == "" || r.noTools():
		return none, nil
	case caller.Viewer() != "" && caller.Viewer() != r.user:
		return none, &paramError{param: "user", err: registry.Errorf(registry.CodeForbidden,
			"The token is another user's. Leave \"user\" out, or name the user of the token.")}
	}
	found, err := sessionsOf(ctx, sessions, caller, r.user)
	switch {
	case err != nil:
		return none, err
	case len(found) == 1:
		return registry.Key{Tenant: caller.Tenant, Session: found[0].SessionID}, nil
	case len(found) > 1:
		return none, &paramError{param: "user", err: &registry.Error{
			Code: registry.CodeAmbiguousTarget, Candidates: found,
			Message: "Several sessions of this user are connected. Name one in the header " + HeaderSession + ".",
		}}
	}
	e, err := sessions.Connected(ctx, caller, r.user)
	switch {
	case errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeNotConnected):
		return none, nil
	case err != nil:
		return none, err
	case e.Session.UserID != "" && e.Session.UserID != r.user: // a device can choose a user's name as its id
		return none, nil
	}
	return e.Session.Key, nil
}

// sessionsOf returns the connected sessions of a user, at most maxCandidates. It reads a bounded number of sessions, so
// callers in a very large fleet need the header.
func sessionsOf(
	ctx context.Context, sessions Sessions, caller auth.Identity, user string,
) ([]registry.Candidate, error) {
	q := registry.Query{Tenant: caller.Tenant, Target: registry.Target{UserID: user, Viewer: caller.Viewer()}}
	var found []registry.Candidate
	err := sessions.Each(ctx, q, func(e registry.Entry) {
		if len(found) < maxCandidates {
			found = append(found, registry.Candidate{
				SessionID: e.Session.Key.Session, DeviceID: e.Session.DeviceID, UserID: e.Session.UserID,
				Name: e.Session.Name,
			})
		}
	})
	return found, err
}

const (
	maxStops       = 4 // as at OpenAI
	maxTemperature = 2
)

// Request is the body of a request for a completion. Each field is applied, passed to the model, or rejected by its
// name. None is ignored.
type Request struct {
	completion   chat.Completion // without Key, Caller and Turn; Model as it was sent
	user         string
	stream       bool
	includeUsage bool
}

// ParseRequest parses the body of a request for a completion.
func ParseRequest(body []byte) (Request, error) {
	var r Request
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty.")
	}
	if err := jsonbody.Check(body); err != nil {
		return r, err
	}
	var failed error
	f := readFields(body, "", &failed)
	for _, read := range []func(fields){
		refuseUnoffered, r.readModel, r.readMessages, r.readTools, r.readToolChoice, r.readSampling, r.readStop,
		r.readOptions, r.readFormat, r.readStreaming,
	} {
		if read(f); failed != nil {
			break
		}
	}
	return r, failed
}

// Streamed reports whether the answer is streamed.
func (r *Request) Streamed() bool { return r.stream }

func (r *Request) readModel(f fields) {
	if r.completion.Model = f.str("model"); r.completion.Model == "" {
		f.fail("model",
			"You must provide a model parameter: a name of GET /v1/models, or %q for the default.", defaultModel)
	}
	r.user = f.str("user")
}

func (r *Request) readStreaming(f fields) {
	r.stream = f.isSet("stream")
	if !f.has("stream_options") {
		return
	}
	options := f.object("stream_options")
	options.only("include_usage", "include_obfuscation")
	if options.has("include_obfuscation") && string(options.members["include_obfuscation"]) != "false" {
		options.fail("include_obfuscation", "Padding of streams is not offered.")
	}
	r.includeUsage = options.isSet("include_usage")
}

func (r *Request) readSampling(f fields) {
	c := &r.completion
	c.MaxTokens = f.count("max_tokens")
	c.MaxTokens = cmp.Or(f.count("max_completion_tokens"), c.MaxTokens)
	c.Temperature = f.number("temperature", 0, maxTemperature)
}

// readStop reads one stop sequence or several.
func (r *Request) readStop(f fields) {
	var one string
	if json.Unmarshal(f.members["stop"], &one) == nil {
		r.completion.Stop = []string{one}
	} else {
		f.decode("stop", &r.completion.Stop, "a string or an array of strings")
	}
	if len(r.completion.Stop) > maxStops {
		f.fail("stop", "At most %d sequences may be given in \"stop\".", maxStops)
	}
	if slices.Contains(r.completion.Stop, "") {
		f.fail("stop", "A sequence in \"stop\" must not be empty.")
	}
}
