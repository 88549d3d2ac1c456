package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// postMessage sends a message to a session. It answers with the whole turn at its end, or with events while it runs.
func (h *handler) postMessage(c *gin.Context, _ params) error {
	r, streamed, err := h.readMessage(c)
	if err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return err
	}
	key, owner, err := h.conversation(c, agent)
	if err != nil {
		return err
	}
	ask := chat.Ask{
		Key: key, Owner: owner, Caller: caller(c), Content: r.content, Regenerate: r.regenerate,
		Debug: r.debug && !h.IgnoreDebug, Format: r.format, Kind: r.kind,
	}
	ctx, cancel := h.turnContext(c)
	defer cancel()
	if streamed {
		return h.streamTurn(ctx, c, func(ctx context.Context, t *ssewriter.TurnStream) ssewriter.Ending {
			return relay(ctx, agent, ask, t)
		})
	}
	return h.answerTurn(ctx, c, agent, ask)
}

// conversation returns the session in the path, and the owner of its conversation if that begins now. It fails if no
// device is connected and there is no earlier message.
func (h *handler) conversation(c *gin.Context, agent chat.Agent) (registry.Key, registry.Owner, error) {
	if h.Closing.Err() != nil {
		return registry.Key{}, registry.Owner{}, draining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	owner := ownerOf(caller(c), k.session)
	switch {
	case err == nil && (k.session != nil || k.info.Messages > 0):
		return k.key, owner, nil
	case err == nil:
		err = registry.UnknownSession() // it has only a name
	case k.foreign || !isAbsent(err) || k.key.Validate() != nil:
		return k.key, owner, err
	}
	switch n, countErr := agent.CountMessages(ctx, k.key); {
	case countErr != nil:
		return k.key, owner, countErr
	case n > 0:
		return k.key, owner, nil
	}
	if errors.Is(err, registry.CodeNotConnected) { // wait for its device
		due, failure := h.expected(ctx, caller(c), k.key)
		if failure != nil || due != nil {
			return k.key, ownerOf(caller(c), due), failure
		}
	}
	return k.key, owner, err
}

// answerTurn runs a turn to its end and writes its answer.
func (h *handler) answerTurn(ctx context.Context, c *gin.Context, agent chat.Agent, ask chat.Ask) error {
	aborted := false
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) { aborted = e.Type == chat.EventAborted })
	if err != nil {
		return turnError(ctx, err, aborted)
	}
	calls := make([]wire.TurnCall, len(reply.Calls))
	for i, call := range reply.Calls {
		calls[i] = wire.TurnCall{
			ID: call.ID, Name: call.Name, Args: shownArgs(call.Args), Status: string(call.Status), Output: call.Output,
			Parts: call.Parts,
		}
	}
	return h.writeJSON(c, http.StatusOK, wire.TurnAnswer{
		Turn: reply.Turn, SessionID: ask.Key.Session, FullResponse: reply.FullResponse, ToolCalls: calls,
		Stop: string(reply.Stop), Usage: usageOf(reply.Usage), MessageCount: reply.MessageCount, Title: reply.Title,
		DurationMS: reply.Duration.Milliseconds(),
	})
}

// relay runs a turn and sends its events. The last event is sent after the turn's reply, which has more information.
func relay(ctx context.Context, agent chat.Agent, ask chat.Ask, t *ssewriter.TurnStream) ssewriter.Ending {
	reader := ask.Caller
	var last chat.Event
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventDone, chat.EventAborted, chat.EventError:
			last = e
		default:
			t.Send(string(e.Type), turnEvent(e, reader))
		}
	})
	switch {
	case err == nil:
		return ssewriter.Ending{Tell: func(t *ssewriter.TurnStream) { t.Send(string(chat.EventDone), doneOf(reply)) }}
	case last.Type == chat.EventAborted && ctx.Err() == nil:
		return ssewriter.Ending{Tell: func(t *ssewriter.TurnStream) {
			t.Send(string(last.Type), turnEvent(last, reader))
		}}
	}
	failure := turnError(ctx, err, false)
	return ssewriter.Ending{Failure: failure, Tell: func(t *ssewriter.TurnStream) {
		t.Send(string(chat.EventError), turnEvent(failureEvent(err, failure), reader))
	}}
}

// failureEvent returns the event of a failure in a stream that has begun: the agent's error, otherwise the problem's
// message.
func failureEvent(err, failure error) chat.Event {
	e := chat.Event{Type: chat.EventError, Code: chat.CodeAgent}
	var failed *chat.Error
	if errors.As(err, &failed) {
		e.Code, e.Message, e.RetryAfter = failed.Code, failed.Message, failed.RetryAfter()
		return e
	}
	e.Message = registry.AsError(failure).Message
	return e
}

// messageRequest is the body of a message to a session.
type messageRequest struct {
	content    string
	regenerate bool
	debug      bool
	stream     *bool // nil when absent
	format     chat.Format
	kind       policy.Context // audience of the conversation, as stated by the caller
}

// parseMessage parses the body of a message.
func parseMessage(body []byte) (messageRequest, error) {
	var r messageRequest
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty. Send {\"content\":\"…\"}.")
	}
	fields, err := readBodyObject(body, "content", "regenerate", "debug", "stream", "results", "context")
	if err != nil {
		return r, err
	}
	for _, name := range []string{"content", "results", "context", "regenerate", "debug", "stream"} {
		if text, ok := fields.get(name); ok {
			if err := r.readField(name, text); err != nil {
				return r, err
			}
		}
	}
	switch _, said := fields.get("content"); {
	case said && r.regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"content\" and \"regenerate\" exclude one another: the last message is answered again.")
	case !said && !r.regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest, "The field \"content\" is missing: it is what is said.")
	}
	return r, nil
}

// readField reads one field of the body.
func (r *messageRequest) readField(name string, text json.RawMessage) (err error) {
	switch name {
	case "content":
		r.content, err = readString(text, name)
	case "results":
		r.format, err = readEither(text, name, chat.FormatMarkdown, chat.FormatPlain)
	case "context":
		r.kind, err = readContext(text, name)
	case "regenerate":
		r.regenerate, err = readBool(text, name)
	case "debug":
		r.debug, err = readBool(text, name)
	case "stream":
		var on bool
		on, err = readBool(text, name)
		r.stream = &on
	}
	return err
}

// readContext reads the audience of a conversation. It can only be stricter than that of the credentials.
func readContext(text json.RawMessage, at string) (policy.Context, error) {
	s, err := readString(text, at)
	if err == nil && !slices.Contains(policy.Contexts(), policy.Context(s)) {
		err = wrongType(at, fmt.Sprintf("one of %q", policy.Contexts()))
	}
	return policy.Context(s), err
}

func readBool(text json.RawMessage, at string) (bool, error) {
	switch string(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, wrongType(at, "true or false")
	}
}

// readMessage reads a message, and whether its answer is streamed: as stated in the body, otherwise if the caller
// accepts events.
func (h *handler) readMessage(c *gin.Context) (r messageRequest, streamed bool, err error) {
	body, err := h.readBody(c)
	if err != nil {
		return r, false, err
	}
	if r, err = parse(c, h.Invoker, body, parseMessage); err != nil {
		return r, false, err
	}
	if r.stream != nil {
		return r, *r.stream, nil
	}
	return r, acceptsEvents(c.Request.Header), nil
}

func acceptsEvents(header http.Header) bool {
	for _, value := range header.Values("Accept") {
		for item := range strings.SplitSeq(value, ",") {
			if media, _, err := mime.ParseMediaType(item); err == nil && media == "text/event-stream" {
				return true
			}
		}
	}
	return false
}
