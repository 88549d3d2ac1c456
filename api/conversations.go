package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/registry"
)

const (
	// abortWait is how long an abort waits for the end of the turn, and abortAgain how soon it asks for it again: a message
	// between pods can be lost. A turn whose pod has died ends with its lease, later.
	abortWait  = 3 * time.Second
	abortAgain = 500 * time.Millisecond
	abortLook  = 20 * time.Millisecond

	maxRunning = 1000 // running conversations listed
)

// States of a session, as ClawSeed names them.
const (
	stateIdle    = "idle"
	stateRunning = "running"
)

// known is what there is of a session: its connection, its conversation, or both.
type known struct {
	key     registry.Key
	session *registry.Session // nil: not connected
	info    registry.ConversationInfo
	foreign bool // it is another user's
}

// talked reports whether anything is kept of the conversation.
func (k known) talked() bool {
	return k.info.Messages > 0 || k.info.Title != "" || !k.info.Turn.IsZero()
}

// known returns what the caller may know of the session the path names. What is another user's does not exist.
func (h *handler) known(ctx context.Context, c *gin.Context) (known, error) {
	k, who := known{key: sessionKey(c)}, caller(c)
	e, sessionErr := h.session(ctx, k.key)
	switch {
	case sessionErr == nil && isForeign(who, e.Session):
		k.foreign = true
		return k, unknownSession()
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
	case k.info.Owner.Foreign(who.User):
		k.foreign = true
		return k, unknownSession()
	case k.session == nil && !k.talked():
		return k, sessionErr
	}
	return k, nil
}

// describe returns what lists show of one conversation.
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
func (h *handler) renameSession(c *gin.Context, _ params) {
	name, err := h.readName(c)
	if err != nil {
		h.fail(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.known(ctx, c)
	if err == nil {
		err = h.Conversations.NameConversation(ctx, k.key, name)
	}
	if err != nil {
		h.fail(c, err)
		return
	}
	h.writeStatus(c, renamed{k.key.Session, name})
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
	if err := jsonbody.Check(body); err != nil {
		return nil, err
	}
	return readObject(body, "", names...)
}

// deleteSession ends a session: its turn is aborted, its connection closed, its conversation erased. The device is told not to
// come back, and may still do so, to an empty conversation.
func (h *handler) deleteSession(c *gin.Context, _ params) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.known(ctx, c)
	if err == nil {
		err = h.end(ctx, k)
	}
	switch {
	case errors.Is(err, registry.CodeNotConnected):
		h.fail(c, registry.Errorf(registry.CodeNotConnected, "The session is not connected, so there is nothing to end."))
	case err != nil:
		h.fail(c, err)
	default:
		c.Status(http.StatusNoContent)
	}
}

// end ends what there is of a session. The connection goes first, so that it begins no further turn.
func (h *handler) end(ctx context.Context, k known) error {
	var kicked error
	if k.session != nil {
		kicked = h.Kicker.Kick(ctx, *k.session)
		if kicked != nil && (!k.talked() || !errors.Is(kicked, registry.CodeNotConnected)) {
			return kicked
		}
	}
	if !k.info.Turn.IsZero() {
		if err := h.Turns.Abort(ctx, k.key); err != nil {
			return err
		}
	}
	_, err := h.Conversations.EraseConversation(ctx, k.key) // also what came since: its turn is lost with it
	return err
}

// aborted is the answer to an abort, as on the socket.
type aborted struct {
	Status string `json:"status"`
}

// abortSession ends the turn that is under way, wherever it runs. It answers when that has ended, so that what was said is
// there to be read; a session nobody talks to has nothing to end, which is no error.
func (h *handler) abortSession(c *gin.Context, _ params) {
	body, err := h.readBody(c)
	if err == nil {
		_, err = readMembers(body)
	}
	if err != nil {
		h.fail(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.known(ctx, c)
	switch {
	case errors.Is(err, registry.CodeNotConnected):
	case err != nil:
		h.fail(c, err)
		return
	}
	if k.info.Turn.IsZero() {
		h.writeStatus(c, aborted{"no_active_response"})
		return
	}
	if err := h.abort(ctx, k); err != nil {
		h.fail(c, err)
		return
	}
	h.writeStatus(c, aborted{"aborted"})
}

// abort asks for the end of a turn until it has ended or abortWait has passed.
func (h *handler) abort(ctx context.Context, k known) error {
	deadline, again := time.Now().Add(abortWait), time.Time{}
	look := time.NewTicker(abortLook)
	defer look.Stop()
	for time.Now().Before(deadline) {
		if now := time.Now(); !now.Before(again) {
			if err := h.Turns.Abort(ctx, k.key); err != nil {
				return err
			}
			again = now.Add(abortAgain)
		}
		info, err := h.describe(ctx, k.key)
		if err != nil || !info.Turn.Equal(k.info.Turn) {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return registry.StoreUnavailable("abort a turn", ctx.Err())
		}
	}
	return nil
}

// stateAnswer says whether a turn of a session is under way.
type stateAnswer struct {
	SessionID     string `json:"session_id"`
	State         string `json:"state"`
	TurnStartedAt string `json:"turn_started_at,omitempty"`
}

// sessionState says whether somebody is being answered.
func (h *handler) sessionState(c *gin.Context, _ params) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.known(ctx, c)
	if err != nil {
		h.fail(c, err)
		return
	}
	answer := stateAnswer{SessionID: k.key.Session, State: stateIdle}
	if !k.info.Turn.IsZero() {
		answer.State, answer.TurnStartedAt = stateRunning, k.info.Turn.Format(timeFormat)
	}
	h.respond(c, answer)
}

// runningRow is a session with a turn under way.
type runningRow struct {
	SessionID     string `json:"session_id"`
	Name          string `json:"name,omitempty"`
	CreatedAt     string `json:"created_at"`
	LastActivity  string `json:"last_activity"`
	MessageCount  int    `json:"message_count"`
	TurnStartedAt string `json:"turn_started_at"`
}

// runningSessions lists the sessions with a turn under way, the longest running first.
func (h *handler) runningSessions(c *gin.Context, _ params) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	who := caller(c)
	infos, err := h.Conversations.RunningConversations(ctx, who.Tenant, maxRunning)
	if err != nil {
		h.fail(c, err)
		return
	}
	answer := struct {
		Sessions []runningRow `json:"sessions"`
	}{[]runningRow{}}
	for _, info := range infos {
		if row := offlineRowOf(info); !info.Owner.Foreign(who.User) {
			answer.Sessions = append(answer.Sessions, runningRow{
				SessionID: row.SessionID, Name: row.Name, CreatedAt: row.CreatedAt, LastActivity: row.LastActivity,
				MessageCount: row.MessageCount, TurnStartedAt: info.Turn.Format(timeFormat),
			})
		}
	}
	h.respond(c, answer)
}

// ownerOf says whose a conversation is that begins with a device, or with nobody's.
func ownerOf(who auth.Identity, s *registry.Session) registry.Owner {
	if s == nil {
		return registry.Owner{UserID: who.User}
	}
	return registry.Owner{UserID: s.UserID, DeviceID: s.DeviceID}
}

// noConversations stands for a store that keeps none.
type noConversations struct{}

func (noConversations) DescribeConversations(_ context.Context, keys ...registry.Key) ([]registry.ConversationInfo, error) {
	infos := make([]registry.ConversationInfo, len(keys))
	for i, key := range keys {
		infos[i].Key = key
	}
	return infos, nil
}

func (noConversations) ListConversations(
	context.Context, registry.ConversationQuery,
) ([]registry.ConversationInfo, *registry.ConversationCursor, error) {
	return nil, nil, nil
}

func (noConversations) RunningConversations(context.Context, string, int) ([]registry.ConversationInfo, error) {
	return nil, nil
}

func (noConversations) ConversationsVersion(context.Context, string) (string, error) { return "", nil }

func (noConversations) NameConversation(context.Context, registry.Key, string) error {
	return registry.Errorf(registry.CodeNotFound, "This gateway keeps no conversations.")
}

func (noConversations) EraseConversation(context.Context, registry.Key) (bool, error) {
	return false, nil
}

func (noConversations) Abort(context.Context, registry.Key) error { return nil }
