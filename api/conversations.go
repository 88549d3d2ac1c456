package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// knownSession is the known state of a session: its connection, its conversation, or both.
type knownSession struct {
	key     registry.Key
	session *registry.Session // nil: not connected
	info    registry.ConversationInfo
	foreign bool // it belongs to another user
}

// hasConversation reports whether any part of the conversation is stored.
func (k knownSession) hasConversation() bool {
	return k.info.Messages > 0 || k.info.Title != "" || !k.info.Turn.IsZero()
}

// findSession returns what the caller may see of the session that the path names. A session of another user does not
// exist for the caller.
func (h *handler) findSession(ctx context.Context, c *gin.Context) (knownSession, error) {
	k, who := knownSession{key: sessionKey(c)}, caller(c)
	e, foreign, sessionErr := h.session(ctx, who, k.key)
	switch {
	case foreign:
		k.foreign = true
		return k, sessionErr
	case sessionErr == nil:
		k.session = &e.Session
	case k.key.Validate() != nil || !isAbsent(sessionErr):
		return k, sessionErr
	}
	var err error
	if k.info, err = h.describe(ctx, k.key); err != nil {
		return k, err
	}
	switch {
	case !who.Sees(k.info.Owner.UserID):
		k.foreign = true
		return k, registry.UnknownSession()
	case k.session == nil && !k.hasConversation():
		return k, sessionErr
	}
	return k, nil
}

// describe returns the listed attributes of one conversation.
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

// renameSession sets the name of a session's conversation, even before its first message.
func (h *handler) renameSession(c *gin.Context, _ params) error {
	name, err := h.readName(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err == nil {
		err = h.Conversations.NameConversation(ctx, k.key, name)
	}
	if err != nil {
		return err
	}
	return h.writeStatus(c, wire.SessionRenamed{SessionID: k.key.Session, Name: name})
}

// readName reads the body of a rename.
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
func (h *handler) deleteSession(c *gin.Context, _ params) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err == nil {
		err = h.end(ctx, k)
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

// end ends a session. It closes the connection first, so that no further turn begins on it.
func (h *handler) end(ctx context.Context, k knownSession) error {
	var kicked error
	if k.session != nil {
		kicked = h.Kicker.Kick(ctx, *k.session)
		if kicked != nil && (!k.hasConversation() || !errors.Is(kicked, registry.CodeNotConnected)) {
			return kicked
		}
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
func (h *handler) getMessages(c *gin.Context, q params) error {
	limit, err := q.limit()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	transcript, err := h.transcript(ctx, c)
	if err != nil {
		return err
	}
	said := transcript.Messages
	answer := wire.Transcript{
		SessionID: c.Param("id"), Title: transcript.Title, Busy: transcript.Busy, MessageCount: len(said),
		Messages: []wire.Message{},
	}
	for _, m := range said[max(0, len(said)-limit):] {
		answer.Messages = append(answer.Messages, messageOf(m))
	}
	return h.respond(c, answer)
}

// transcript reads a conversation. If its session exists, a conversation that has not begun is empty.
func (h *handler) transcript(ctx context.Context, c *gin.Context) (chat.Transcript, error) {
	agent, err := h.agent()
	if err != nil {
		return chat.Transcript{}, err
	}
	key := sessionKey(c)
	_, foreign, sessionErr := h.session(ctx, caller(c), key)
	switch {
	case foreign, key.Validate() != nil:
		return chat.Transcript{}, sessionErr
	case sessionErr != nil && !isAbsent(sessionErr): // its owner is unknown
		return chat.Transcript{}, sessionErr
	}
	if info, err := h.describe(ctx, key); err != nil {
		return chat.Transcript{}, err
	} else if !caller(c).Sees(info.Owner.UserID) {
		return chat.Transcript{}, registry.UnknownSession()
	}
	transcript, err := agent.Transcript(ctx, key)
	if err != nil || len(transcript.Messages) > 0 || transcript.Busy {
		return transcript, err
	}
	if errors.Is(sessionErr, registry.CodeNotConnected) {
		return transcript, nil // its device is known but away
	}
	return transcript, sessionErr
}

func messageOf(m provider.Message) wire.Message {
	r := wire.Message{
		Role: string(m.Role), Content: m.Content, ToolCallID: m.ToolCallID, ToolName: m.ToolName, Failed: m.Failed,
		Interrupted: m.Interrupted, Turn: m.Turn, Parts: m.Attachments,
	}
	r.Tainted, r.Approved, r.Source = m.Tainted, m.Approved, m.Source
	for _, s := range m.Suspects {
		r.Suspects = append(r.Suspects, wire.Suspect(s))
	}
	if m.Foreign() {
		r.Tainted, r.Source = true, sourceOutside
	}
	if !m.At.IsZero() {
		r.At = shownTime(m.At)
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
