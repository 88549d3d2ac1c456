package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// knownSession is the known state of a session: its connection, its conversation, or both.
type knownSession struct {
	key     registry.Key
	session *registry.Session // nil: not connected
	absent  error             // why it is not connected, if the caller may know that
	info    registry.ConversationInfo
}

// hasConversation reports whether any part of the conversation is stored.
func (k knownSession) hasConversation() bool {
	return k.info.Messages > 0 || k.info.Title != "" || !k.info.Turn.IsZero()
}

// findSession returns what the caller may see of the session that the path names. A session of another user does not
// exist for the caller. If it fails and absent is set, the session has neither a connection nor a conversation.
func (h *handler) findSession(ctx context.Context, c *gin.Context) (knownSession, error) {
	key, who := sessionKey(c), caller(c)
	none := knownSession{key: key}
	e, foreign, sessionErr := h.session(ctx, who, key)
	if sessionErr != nil && (foreign || key.Validate() != nil || !isAbsent(sessionErr)) {
		return none, sessionErr
	}
	info, err := h.describe(ctx, key)
	switch {
	case err != nil:
		return none, err
	case !who.Sees(info.Owner.UserID):
		return none, registry.UnknownSession()
	case sessionErr == nil:
		return knownSession{key: key, session: &e.Session, info: info}, nil
	}
	k := knownSession{key: key, absent: sessionErr, info: info}
	if !k.hasConversation() {
		return k, sessionErr
	}
	return k, nil
}

func (h *handler) describe(ctx context.Context, key registry.Key) (registry.ConversationInfo, error) {
	if key.Validate() != nil {
		return registry.ConversationInfo{Key: key}, nil
	}
	infos, err := h.Conversations.DescribeConversations(ctx, key)
	if err != nil {
		return registry.ConversationInfo{}, err
	}
	return infos[0], nil
}

// What counts in the budget of conversations beside their messages, in bytes.
const (
	// nameCost is more than a name takes: at the default of FARHAND_HISTORY_BYTES, an identity can store 32,768 in
	// FARHAND_HISTORY_TTL, and the in-memory store keeps up to 50,000 conversations of a tenant.
	nameCost = 8 << 10
	// eraseCost is about what the erasure of a session without a conversation stores: that it was erased, for its
	// tools, files and places. A conversation has paid for that with its first message.
	eraseCost = 1 << 10
)

// spend spends bytes of the caller's budget of conversations. A name or erasure that is stored already counts again,
// because each extends the life of what is stored.
func (h *handler) spend(ctx context.Context, who auth.Identity, bytes int) error {
	by := who.Owner()
	if who.Scope() == "" { // callers with the shared token use the budget of the tenant, as in turns
		by.Identity = ""
	}
	return h.History.Begin(ctx, by, bytes)
}

// renameSession sets the name of a session's conversation, even before its first message.
func (h *handler) renameSession(c *gin.Context, _ *params) error {
	name, err := h.readName(c)
	if err != nil {
		return err
	}
	ctx := storeContext(c)
	k, err := h.findSession(ctx, c)
	if err == nil {
		err = h.spend(ctx, caller(c), nameCost)
	}
	if err == nil {
		err = h.Conversations.NameConversation(ctx, k.key, name)
	}
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.SessionRenamed{SessionID: k.key.Session, Name: name})
}

func (h *handler) readName(c *gin.Context) (string, error) {
	body, err := h.readBody(c)
	if err != nil {
		return "", err
	}
	r, err := readStrict[wire.SessionName](orNothing(body), nil)
	if err == nil && r.said.Name == "" {
		err = missing("name")
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(r.said.Name)
	if name == "" {
		return "", registry.Errorf(registry.CodeInvalidRequest, "The field \"name\" must not be blank.")
	}
	return name, registry.Session{Name: name}.ValidateAttributes()
}

// deleteSession ends a session: it aborts the turn, closes the connection, and erases the conversation. The close frame
// asks the device not to reconnect. If it still does, it begins an empty conversation.
func (h *handler) deleteSession(c *gin.Context, _ *params) error {
	ctx := storeContext(c)
	k, err := h.findSession(ctx, c)
	if err == nil {
		var unpaid error
		if !k.hasConversation() {
			unpaid = h.spend(ctx, caller(c), eraseCost)
		}
		if err = h.end(ctx, k, unpaid == nil); err == nil && unpaid != nil { // closing a connection is never refused
			failed := *registry.AsError(unpaid)
			failed.Message = "The connection was closed, but the state of its tools was not erased. " + failed.Message
			err = &failed
		}
	}
	switch {
	case errors.Is(err, registry.CodeNotConnected):
		return registry.Errorf(registry.CodeNotConnected, "The session is not connected, so there is nothing to end.")
	case err != nil:
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// end ends a session. It closes the connection first, so that no further turn begins on it. What could fail the request
// comes before that: a session without messages is not found again. Without erase it only closes the connection.
func (h *handler) end(ctx context.Context, k knownSession, erase bool) error {
	if erase {
		if err := h.Ending(ctx, k.key); err != nil {
			return err
		}
	}
	var kicked error
	if k.session != nil {
		kicked = h.Kicker.Kick(ctx, *k.session)
		if kicked != nil && (!k.hasConversation() || !errors.Is(kicked, registry.CodeNotConnected)) {
			return kicked
		}
	}
	if !erase {
		return nil
	}
	if !k.info.Turn.IsZero() {
		if err := h.Turns.Abort(ctx, k.key); err != nil {
			return err
		}
	}
	if _, err := h.Conversations.EraseConversation(ctx, k.key); err != nil { // also loses a turn that began since
		return err
	}
	h.Ended(ctx, k.key)
	return nil
}

// ownerOf returns the owner of a new conversation: the user of its device, or else the caller.
func ownerOf(who auth.Identity, s *registry.Session) registry.Owner {
	if s == nil {
		return registry.Owner{UserID: who.User}
	}
	return registry.Owner{UserID: cmp.Or(s.UserID, who.User), DeviceID: s.DeviceID, Bound: s.Bound}
}

// sourceOutside is the source of a result that third parties may have written.
const sourceOutside = "outside"

// getMessages returns a conversation, also during a turn and after the device has gone.
func (h *handler) getMessages(c *gin.Context, q *params) error {
	limit := q.limit()
	if err := q.failed(); err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return err
	}
	ctx := storeContext(c)
	k, err := h.findSession(ctx, c)
	if err != nil && k.absent == nil {
		return err
	}
	transcript, err := agent.Transcript(ctx, k.key)
	switch {
	case err != nil:
		return err
	case len(transcript.Messages) > 0, transcript.Busy:
	case k.absent != nil && !errors.Is(k.absent, registry.CodeNotConnected): // no device of this session is known
		return k.absent
	}
	said := transcript.Messages
	return h.respond(c, wire.Transcript{
		SessionID: c.Param("id"), Title: transcript.Title, Busy: transcript.Busy, MessageCount: len(said),
		Messages: each(said[max(0, len(said)-limit):], messageOf),
	})
}

func messageOf(m provider.Message) wire.Message {
	r := wire.Message{
		Role: string(m.Role), Content: m.Content, ToolCallID: m.ToolCallID, ToolName: m.ToolName, Failed: m.Failed,
		Interrupted: m.Interrupted, Turn: m.Turn, Parts: m.Attachments, Tainted: m.Tainted, Approved: m.Approved,
		Source: m.Source, At: optionalTime(m.At),
	}
	for _, s := range m.Suspects {
		r.Suspects = append(r.Suspects, wire.Suspect(s))
	}
	if m.Foreign() {
		r.Tainted, r.Source = true, sourceOutside
	}
	var thoughts []string
	for _, t := range m.Thinking {
		if t.Text != "" {
			thoughts = append(thoughts, t.Text)
		}
	}
	r.Thinking = strings.Join(thoughts, "\n\n")
	for _, call := range m.ToolCalls {
		r.ToolCalls = append(r.ToolCalls, wire.MessageCall{
			ID: call.ID, Name: call.Name, Args: shownArgs(json.RawMessage(call.Args)),
		})
	}
	return r
}

// postMessage sends a message to a session. It answers with the whole turn at its end, or with events while it runs.
func (h *handler) postMessage(c *gin.Context, _ *params) error {
	r, err := readAs(h, c, parseMessage)
	if err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return err
	}
	queue, err := h.queueHeader(c)
	if err != nil {
		return err
	}
	if q := r.said.Queue; q != nil {
		if queue = time.Duration(q.TTLMS) * time.Millisecond; q.TTLMS <= 0 || q.TTLMS > maxQueueMS {
			return wrongType("queue.ttl_ms", "a whole number of milliseconds above zero")
		}
	}
	key, owner, err := h.conversation(c, agent, queue > 0)
	if err != nil {
		return err
	}
	said, streamed := r.said, acceptsEvents(c.Request.Header)
	ask := chat.Ask{
		Key: key, Owner: owner, Caller: caller(c), Content: said.Content, Regenerate: said.Regenerate,
		Debug:  said.Debug != nil && *said.Debug && !h.IgnoreDebug,
		Format: chat.Format(said.Results), Kind: policy.Context(said.Context), Queue: queue,
	}
	ctx, cancel := h.turnContext(c)
	defer cancel()
	if said.Stream != nil {
		streamed = *said.Stream
	}
	if streamed {
		return h.streamTurn(ctx, c, func(ctx context.Context, t *ssewriter.TurnStream) (func(), error) {
			return relay(ctx, agent, ask, t)
		})
	}
	return h.answerTurn(ctx, c, agent, ask)
}

// conversation returns the session in the path, and the owner of its conversation if that begins now. It fails if no
// device is connected and there is no earlier message. With sleeps, a device that sleeps is enough.
func (h *handler) conversation(c *gin.Context, agent chat.Agent, sleeps bool) (registry.Key, registry.Owner, error) {
	if h.Closing.Err() != nil {
		return registry.Key{}, registry.Owner{}, draining()
	}
	ctx := storeContext(c)
	k, err := h.findSession(ctx, c)
	owner := ownerOf(caller(c), k.session)
	switch {
	case err == nil && (k.session != nil || k.info.Messages > 0):
		return k.key, owner, nil
	case err == nil:
		err = registry.UnknownSession() // it has only a name
	case k.absent == nil:
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
	if sleeps && isAbsent(err) {
		known, failure := h.sleeping(ctx, caller(c), registry.Target{SessionID: k.key.Session})
		if failure != nil || len(known) > 0 {
			return k.key, ownerOf(caller(c), sessionOf(known)), failure
		}
	}
	return k.key, owner, err
}

// sessionOf returns the session of the first of some known devices; nil: there is none.
func sessionOf(known []registry.KnownDevice) *registry.Session {
	if len(known) == 0 {
		return nil
	}
	return &known[0].Session
}

// maxQueueMS keeps a time in milliseconds within a duration.
const maxQueueMS = int64(1<<63-1) / int64(time.Millisecond)

func (h *handler) answerTurn(ctx context.Context, c *gin.Context, agent chat.Agent, ask chat.Ask) error {
	aborted := false
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) { aborted = e.Type == chat.EventAborted })
	if err != nil {
		return turnError(ctx, err, aborted)
	}
	calls := each(reply.Calls, func(call chat.CallReport) wire.TurnCall {
		return wire.TurnCall{
			ID: call.ID, Name: call.Name, Args: shownArgs(call.Args), Status: string(call.Status), Output: call.Output,
			Parts: call.Parts,
		}
	})
	return h.writeJSON(c, http.StatusOK, wire.TurnAnswer{
		Turn: reply.Turn, SessionID: ask.Key.Session, FullResponse: reply.FullResponse, ToolCalls: calls,
		Stop: string(reply.Stop), Usage: usageOf(reply.Usage), MessageCount: reply.MessageCount, Title: reply.Title,
		DurationMS: reply.Duration.Milliseconds(),
	})
}

// relay runs a turn and sends its events. The last event is sent after the turn's reply, which has more information.
func relay(
	ctx context.Context, agent chat.Agent, ask chat.Ask, t *ssewriter.TurnStream,
) (end func(), failure error) {
	var last chat.Event
	send := func(e chat.Event) { t.Send(string(e.Type), turnEvent(e, ask.Caller)) }
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventDone, chat.EventAborted, chat.EventError:
			last = e
		default:
			send(e)
		}
	})
	switch {
	case err == nil:
		return func() { t.Send(string(chat.EventDone), doneOf(reply)) }, nil
	case last.Type == chat.EventAborted && ctx.Err() == nil:
		return func() { send(last) }, nil
	}
	failure = turnError(ctx, err, false)
	return func() { send(failureEvent(err, failure)) }, failure
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

const wantBool = "true or false"

func parseMessage(body []byte) (r request[wire.MessageRequest], err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty. Send {\"content\":\"…\"}.")
	}
	r, err = readStrict[wire.MessageRequest](body, map[string]string{
		"regenerate": wantBool, "debug": wantBool, "stream": wantBool, "queue": "an object with ttl_ms",
	})
	if err != nil {
		return r, err
	}
	for _, f := range r.fields {
		if string(f.Value) == "null" { // the texts are checked
			return r, wrongType(string(f.Name), wantBool)
		}
	}
	said, audience := r.said, policy.Context(r.said.Context)
	switch {
	case said.Results != "" && said.Results != string(chat.FormatMarkdown) && said.Results != string(chat.FormatPlain):
		return r, wrongType("results", fmt.Sprintf("%q or %q", chat.FormatMarkdown, chat.FormatPlain))
	case audience != "" && !slices.Contains(policy.Contexts(), audience):
		return r, wrongType("context", fmt.Sprintf("one of %q", policy.Contexts()))
	case r.has("content") && said.Regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"content\" and \"regenerate\" cannot be combined: regenerate answers the last message again.")
	case !r.has("content") && !said.Regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest, "The field \"content\" is missing: it is the user's "+
			"message.")
	}
	return r, nil
}

func acceptsEvents(header http.Header) bool {
	for item := range strings.SplitSeq(strings.Join(header.Values("Accept"), ","), ",") {
		if media, _, err := mime.ParseMediaType(item); err == nil && media == "text/event-stream" {
			return true
		}
	}
	return false
}
