package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	// storeTimeout bounds everything one request asks of the directory.
	storeTimeout = 10 * time.Second

	// timeFormat is RFC 3339 in UTC with exactly three decimals.
	timeFormat = "2006-01-02T15:04:05.000Z"
)

// sessionRow is a session in a list, with the names of its tools.
type sessionRow struct {
	SessionID    string            `json:"session_id"`
	Name         string            `json:"name,omitempty"`
	DeviceID     string            `json:"device_id,omitempty"`
	DeviceName   string            `json:"device_name,omitempty"`
	UserID       string            `json:"user_id,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	ConnectedAt  string            `json:"connected_at"`
	Pod          string            `json:"pod"`
	Generation   int64             `json:"generation"`
	Connected    bool              `json:"connected"`
	Tools        any               `json:"tools"` // []string in a list, []toolInfo alone
}

func sessionRowOf(s registry.Session) sessionRow {
	return sessionRow{
		SessionID: s.Key.Session, Name: s.Name, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
		Platform: s.Platform, Labels: s.Labels, Capabilities: s.Capabilities,
		ConnectedAt: s.ConnectedAt.UTC().Format(timeFormat), Pod: s.Pod, Generation: s.Generation, Connected: true,
	}
}

func (h *handler) listSessions(c *gin.Context, q params) {
	h.respondListed(c, q, func(ctx context.Context) (any, error) { return h.sessionPage(ctx, caller(c).Tenant, q) })
}

// sessionPage is an answer of the list of sessions.
type sessionPage struct {
	Sessions   []sessionRow `json:"sessions"`
	NextCursor string       `json:"next_cursor,omitempty"`
}

func (h *handler) sessionPage(ctx context.Context, tenant string, q params) (sessionPage, error) {
	query, from, err := sessionQuery(tenant, q)
	if err != nil {
		return sessionPage{}, err
	}
	query.After = from.sessionsAfter()
	answer := sessionPage{Sessions: []sessionRow{}}
	next, err := h.walk(ctx, query, func(e registry.Entry) {
		row, names := sessionRowOf(e.Session), make([]string, len(e.Tools))
		for i, t := range e.Tools {
			names[i] = t.Name
		}
		row.Tools = names
		answer.Sessions = append(answer.Sessions, row)
	})
	if err != nil {
		return sessionPage{}, err
	}
	if next != nil {
		answer.NextCursor = cursor{Kind: cursorSessions, Generation: next.Generation, Session: next.Session}.String()
	}
	return answer, nil
}

func sessionQuery(tenant string, q params) (registry.Query, cursor, error) {
	query := registry.Query{Tenant: tenant}
	var from cursor
	var err error
	if query.Target, err = q.target(); err != nil {
		return query, from, err
	}
	if query.Tool, err = q.toolName("tool"); err != nil {
		return query, from, err
	}
	if query.Limit, err = q.limit(); err != nil {
		return query, from, err
	}
	from, err = q.cursor(cursorSessions)
	return query, from, err
}

func (h *handler) getSession(c *gin.Context, q params) {
	h.respondListed(c, q, func(ctx context.Context) (any, error) {
		e, err := h.session(ctx, c)
		if err != nil {
			return nil, err
		}
		row, tools := sessionRowOf(e.Session), make([]toolInfo, len(e.Tools))
		for i, t := range e.Tools {
			tools[i] = h.toolInfoOf(caller(c), t)
		}
		row.Tools = tools
		return row, nil
	})
}

// kickSession ends a session's connection. The device is told not to come back, and may still do so.
func (h *handler) kickSession(c *gin.Context, _ params) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	e, err := h.session(ctx, c)
	if err == nil {
		err = h.Kicker.Kick(ctx, e.Session)
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

// session reads the session the path names, if the caller may see it.
func (h *handler) session(ctx context.Context, c *gin.Context) (registry.Entry, error) {
	key := registry.Key{Tenant: caller(c).Tenant, Session: c.Param("id")}
	if key.Validate() != nil { // an impossible id is an unknown one; it never reaches the store
		return registry.Entry{}, unknownSession()
	}
	return h.Directory.Entry(ctx, key)
}
