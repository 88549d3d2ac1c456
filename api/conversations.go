package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// knownSession is what exists of a session: its connection, its conversation, or both.
type knownSession struct {
	key     registry.Key
	session *registry.Session // nil: not connected
	info    registry.ConversationInfo
	foreign bool // it belongs to another user
}

// hasConversation reports whether anything is kept of the conversation.
func (k knownSession) hasConversation() bool {
	return k.info.Messages > 0 || k.info.Title != "" || !k.info.Turn.IsZero()
}

// findSession returns what the caller may know of the session that the path names. The session of another user does not
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

// renamed is the answer to a renaming.
type renamed struct {
	SessionID string `json:"session_id"`
	Name      string `json:"name"`
}

// renameSession gives a session's conversation the name a person chose, before its first message too.
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
	return h.writeStatus(c, renamed{k.key.Session, name})
}

// readName reads the body of a renaming.
func (h *handler) readName(c *gin.Context) (string, error) {
	body, err := h.readBody(c)
	if err != nil {
		return "", err
	}
	fields, err := readMembers(body, "name")
	if err != nil {
		return "", err
	}
	text, ok := fields.get("name")
	if !ok {
		return "", registry.Errorf(registry.CodeInvalidRequest, "The field \"name\" is missing.")
	}
	name, err := readString(text, "name")
	if err != nil {
		return "", err
	}
	if name = strings.TrimSpace(name); name == "" {
		return "", registry.Errorf(registry.CodeInvalidRequest, "The field \"name\" must not be blank.")
	}
	return name, registry.Session{Name: name}.ValidateAttributes()
}

// readMembers reads a body that is an object with at most these fields. An empty one has none.
func readMembers(body []byte, names ...string) (memberList, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	return readBodyObject(body, names...)
}

// deleteSession ends a session: it aborts the turn, closes the connection, and erases the conversation. The close asks
// the device not to come back. A device that comes back all the same begins an empty conversation.
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

// end ends what exists of a session. The connection is closed first, so that it begins no further turn.
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
	if _, err := h.Conversations.EraseConversation(ctx, k.key); err != nil { // a turn that began since is lost with it
		return err
	}
	h.Ended(ctx, k.key)
	return nil
}

// ownerOf returns the owner of a conversation that begins now: the user of its device, or else the caller.
func ownerOf(who auth.Identity, s *registry.Session) registry.Owner {
	if s == nil {
		return registry.Owner{UserID: who.User}
	}
	return registry.Owner{UserID: cmp.Or(s.UserID, who.User), DeviceID: s.DeviceID, Bound: s.Bound}
}
