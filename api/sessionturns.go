package api

import (
	"context"
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	// abortWait is how long an abort waits for the end of the turn. abortAgain is when it is sent again, because a
	// message between pods can be lost. A turn whose pod has died ends later, with that pod's lease. abortLook is the
	// pause between two looks at the turn, whose end nothing announces.
	abortWait  = 3 * time.Second
	abortAgain = 500 * time.Millisecond
	abortLook  = 20 * time.Millisecond

	maxRunning      = 1000 // running conversations on one page
	maxRunningPages = 5    // of the tenant's that one page is made from, about
)

// States of a session, as ClawSeed names them.
const (
	stateIdle    = "idle"
	stateRunning = "running"
)

// aborted is the answer to an abort, as on the socket.
type aborted struct {
	Status string `json:"status"`
}

// abortSession ends the running turn, on whatever pod it runs. It answers when the turn has ended, so that a client can
// read what was said. A session without a turn is no error.
func (h *handler) abortSession(c *gin.Context, _ params) error {
	body, err := h.readBody(c)
	if err == nil {
		_, err = readMembers(body)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err != nil && !errors.Is(err, registry.CodeNotConnected) {
		return err
	}
	if k.info.Turn.IsZero() {
		return h.writeStatus(c, aborted{"no_active_response"})
	}
	if err := h.abort(ctx, k); err != nil {
		return err
	}
	return h.writeStatus(c, aborted{"aborted"})
}

// abort sends aborts until the turn has ended or abortWait has passed.
func (h *handler) abort(ctx context.Context, k knownSession) error {
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

// stateAnswer is the state of a session, with the start of its running turn.
type stateAnswer struct {
	SessionID     string `json:"session_id"`
	State         string `json:"state"`
	TurnStartedAt string `json:"turn_started_at,omitempty"`
}

// sessionState answers whether a turn of a session is running.
func (h *handler) sessionState(c *gin.Context, _ params) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err != nil {
		return err
	}
	answer := stateAnswer{SessionID: k.key.Session, State: stateIdle}
	if !k.info.Turn.IsZero() {
		answer.State, answer.TurnStartedAt = stateRunning, k.info.Turn.Format(timeFormat)
	}
	return h.respond(c, answer)
}

// runningRow is a session with a running turn.
type runningRow struct {
	SessionID string `json:"session_id"`
	Name      string `json:"name,omitempty"`
	conversationRow
	TurnStartedAt string `json:"turn_started_at"`
}

// runningSessions lists the sessions with a running turn, the longest running first. Of a tenant with very many it
// looks at so many only, and the page that it has found says where to go on.
func (h *handler) runningSessions(c *gin.Context, q params) error {
	from, err := q.cursor(cursorRunning)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	answer := struct {
		Sessions   []runningRow `json:"sessions"`
		NextCursor string       `json:"next_cursor,omitempty"`
	}{Sessions: []runningRow{}}
	who, after := caller(c), registry.ConversationCursor{Active: from.Generation, Session: from.Session}
	for range maxRunningPages {
		room := maxRunning - len(answer.Sessions)
		infos, next, err := h.Conversations.RunningConversations(ctx, who.Tenant, after, room)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if row := offlineRowOf(info); who.Sees(info.Owner.UserID) {
				answer.Sessions = append(answer.Sessions,
					runningRow{row.SessionID, row.Name, row.conversationRow, info.Turn.Format(timeFormat)})
			}
		}
		if next == nil {
			return h.respond(c, answer)
		}
		if after = *next; len(answer.Sessions) == maxRunning {
			break
		}
	}
	answer.NextCursor = cursor{Kind: cursorRunning, Generation: after.Active, Session: after.Session}.String()
	return h.respond(c, answer)
}
