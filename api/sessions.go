package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

const (
	// storeTimeout bounds all reads of the store for one request.
	storeTimeout = 10 * time.Second

	// timeFormat is RFC 3339 in UTC with exactly three decimals.
	timeFormat = "2006-01-02T15:04:05.000Z"
)

// storeContext returns a context that bounds all reads of the store for one request. It ends with the request.
func storeContext(c *gin.Context) context.Context {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	c.Set(keyStore, func() { cancel() })
	return ctx
}

func (h *handler) listSessions(c *gin.Context, q *params) error {
	if presence := q.presence(); presence != "" {
		return h.listSessionsOf(c, q, presence)
	}
	return h.respondVersioned(c, q, h.sessionsVersion, func(ctx context.Context) (any, error) {
		return h.sessionPage(ctx, direct(caller(c)), q)
	})
}

// sessionsVersion returns a version that covers all data in rows of sessions.
func (h *handler) sessionsVersion(ctx context.Context, tenant string) (string, error) {
	version, err := h.Directory.Version(ctx, tenant)
	if err != nil {
		return "", err
	}
	conversations, err := h.Conversations.ConversationsVersion(ctx, tenant)
	return fmt.Sprintf("%q %q", version, conversations), err
}

// sessionPage lists the connected sessions in the order of connecting, and then the sessions that have only a
// conversation, the most recently used first.
func (h *handler) sessionPage(ctx context.Context, by agent.Asker, q *params) (wire.SessionList, error) {
	who, answer := by.Who, wire.SessionList{Sessions: []wire.SessionRow{}}
	query := registry.Query{
		Tenant: who.Tenant, Target: q.target(), Tool: q.toolName("tool"), Limit: q.limit(),
	}
	query.Viewer = who.Viewer()
	from, which := q.cursor(cursorSessions), q.oneOf("connected", "true", "false")
	if q.has("presence") {
		which = "true"
	}
	if err := q.failed(); err != nil {
		return wire.SessionList{}, err
	}
	limit := query.Limit
	if !from.Offline && which != "false" {
		query.After = from.sessionsAfter()
		budget, answers := pageBudget{limit, pageBytes}, toolAnswers{h, by, make(map[string]string)}
		next, err := h.walk(ctx, query, func(e registry.Entry) bool {
			row, size := wire.SessionRow{SessionAttributes: attributesOf(&e)}, sessionSize(e.Session)
			row.Tools = make([]string, len(e.Tools))
			for i, t := range e.Tools {
				row.Tools[i] = t.Name
				if why := answers.whyNot(t); why != "" {
					row.ToolsDisabled = append(row.ToolsDisabled, wire.DisabledTool{Name: t.Name, Reason: why})
					size += len(t.Name) + len(why) + disabledOverhead
				}
			}
			answer.Sessions = append(answer.Sessions, row)
			budget.addRow(size + namesSize(row.Tools))
			return !budget.spent() && !answers.spent()
		})
		if err == nil {
			err = h.describeRows(ctx, who, answer.Sessions)
		}
		if err != nil {
			return wire.SessionList{}, err
		}
		if next != nil {
			at := cursor{Kind: cursorSessions, Generation: next.Generation, Session: next.Session}
			answer.NextCursor = at.String()
			return answer, nil
		}
		from = cursor{Kind: cursorSessions}
	}
	if which == "true" || query.Tool != "" || len(query.Labels) > 0 { // offline sessions have neither tools nor labels
		return answer, nil
	}
	from.Offline = true
	return answer, h.addOffline(ctx, who, query.Target, from, limit, &answer)
}

func (h *handler) describeRows(ctx context.Context, who auth.Identity, rows []wire.SessionRow) error {
	if len(rows) == 0 {
		return nil
	}
	version, err := h.Conversations.ConversationsVersion(ctx, who.Tenant)
	if err != nil || version == "" {
		return err
	}
	keys := each(rows, func(r wire.SessionRow) registry.Key {
		return registry.Key{Tenant: who.Tenant, Session: r.SessionID}
	})
	infos, err := h.Conversations.DescribeConversations(ctx, keys...)
	if err != nil {
		return err
	}
	for i, info := range infos {
		if who.Sees(info.Owner.UserID) {
			addConversation(&rows[i].SessionAttributes, info)
		}
	}
	return nil
}

// addOffline fills a page with sessions that have only a conversation. If the page is full, it checks whether there is
// one more.
func (h *handler) addOffline(
	ctx context.Context, who auth.Identity, target registry.Target, from cursor, limit int, page *wire.SessionList,
) error {
	q := registry.ConversationQuery{
		Tenant: who.Tenant, Offline: true,
		After: registry.ConversationCursor{Generation: from.Generation, Session: from.Session},
	}
	start, shown := q.After, ""
	for range maxPages {
		q.Limit = max(1, min(limit-len(page.Sessions), maxSessionPage))
		infos, next, err := h.Conversations.ListConversations(ctx, q)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if !who.Sees(info.Owner.UserID) || target.DeviceID != "" && target.DeviceID != info.Owner.DeviceID ||
				target.UserID != "" && target.UserID != info.Owner.UserID {
				continue
			}
			if len(page.Sessions) == limit {
				page.NextCursor = offlineCursor(hiding(q.After, start, shown, true))
				return nil
			}
			shown = info.Key.Session
			page.Sessions = append(page.Sessions,
				wire.SessionRow{SessionAttributes: offlineSession(info), Tools: []string{}})
		}
		if next == nil {
			return nil
		}
		if q.After = *next; len(page.Sessions) == limit && len(infos) > 0 {
			break
		}
	}
	page.NextCursor = offlineCursor(hiding(q.After, start, shown, true))
	return nil
}

func offlineCursor(at registry.ConversationCursor) string {
	return cursor{Kind: cursorSessions, Generation: at.Generation, Session: at.Session, Offline: true}.String()
}

// getSession returns a session: its connection, or else the data of its conversation.
func (h *handler) getSession(c *gin.Context, q *params) error {
	return h.respondVersioned(c, q, h.sessionsVersion, func(ctx context.Context) (any, error) {
		return h.oneSession(ctx, direct(caller(c)), sessionKey(c))
	})
}

func (h *handler) oneSession(ctx context.Context, by agent.Asker, key registry.Key) (wire.Session, error) {
	who := by.Who
	e, _, sessionErr := h.session(ctx, who, key)
	if sessionErr != nil && !isAbsent(sessionErr) {
		return wire.Session{}, sessionErr
	}
	info, err := h.describe(ctx, key)
	switch {
	case err != nil:
		return wire.Session{}, err
	case sessionErr != nil && (info.Messages == 0 || !who.Sees(info.Owner.UserID)):
		return wire.Session{}, sessionErr
	case sessionErr != nil:
		return wire.Session{SessionAttributes: offlineSession(info), Tools: []wire.Tool{}}, nil
	}
	tools := each(e.Tools, func(t registry.ToolSpec) wire.Tool { return h.toolInfoOf(by, t, nil) })
	answer := wire.Session{SessionAttributes: attributesOf(&e), Tools: tools}
	if who.Sees(info.Owner.UserID) {
		addConversation(&answer.SessionAttributes, info)
	}
	return answer, nil
}

// session reads a connected session. If the caller may not see it, connected or away, it is unknown, and foreign is
// true.
func (h *handler) session(
	ctx context.Context, who auth.Identity, key registry.Key,
) (e registry.Entry, foreign bool, err error) {
	if key.Validate() != nil { // an impossible id is unknown; it is not sent to the store
		return registry.Entry{}, false, registry.UnknownSession()
	}
	e, err = h.Directory.Entry(ctx, key)
	if (err == nil || errors.Is(err, registry.CodeNotConnected)) && !who.Sees(e.Session.UserID) {
		return registry.Entry{}, true, registry.UnknownSession()
	}
	return e, false, err
}

// expected returns a session that is away and whose device is expected to reconnect soon, or nil.
func (h *handler) expected(ctx context.Context, who auth.Identity, key registry.Key) (*registry.Session, error) {
	q := registry.Query{Tenant: key.Tenant, Limit: 1}
	q.SessionID, q.Viewer = key.Session, who.Viewer()
	due, err := h.Directory.Awaited(ctx, q)
	if err != nil || len(due) == 0 {
		return nil, err
	}
	return &due[0].Session, nil
}

func sessionKey(c *gin.Context) registry.Key {
	return registry.Key{Tenant: caller(c).Tenant, Session: c.Param("id")}
}

// isAbsent reports whether an error only says that a session is unknown or not connected.
func isAbsent(err error) bool {
	return errors.Is(err, registry.CodeSessionNotFound) || errors.Is(err, registry.CodeNotConnected)
}

func presenceOf(p registry.Pulse) wire.Presence {
	return wire.Presence{
		Online: true, RoundTripMS: int64(p.RoundTrip / time.Millisecond), LastPong: optionalTime(p.At),
	}
}

func attributesOf(e *registry.Entry) wire.SessionAttributes {
	s := &e.Session
	connectedAt := s.ConnectedAt.UTC().Format(timeFormat)
	return wire.SessionAttributes{
		SessionID: s.Key.Session, Name: s.Name, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
		Platform: s.Platform, Labels: s.Labels, Capabilities: s.Capabilities,
		ConnectedAt: connectedAt, Pod: s.Pod, Generation: s.Generation, Connected: true,
		Presence:     presenceOf(e.Pulse),
		Conversation: wire.Conversation{CreatedAt: connectedAt, LastActivity: connectedAt}, // until it begins
	}
}

// offlineSession returns a session that is not connected and has a conversation.
func offlineSession(c registry.ConversationInfo) wire.SessionAttributes {
	s := wire.SessionAttributes{SessionID: c.Key.Session, DeviceID: c.Owner.DeviceID, UserID: c.Owner.UserID}
	addConversation(&s, c)
	return s
}

// addConversation adds the session's conversation. A name given by a person wins over the name in the device's URL, and
// that wins over a generated title.
func addConversation(r *wire.SessionAttributes, c registry.ConversationInfo) {
	if c.Named || r.Name == "" {
		r.Name = c.Title
	}
	r.MessageCount = c.Messages
	if !c.Created.IsZero() {
		r.CreatedAt, r.LastActivity = c.Created.Format(timeFormat), c.Active.Format(timeFormat)
	}
}

// About how many bytes a row, and a wire.DisabledTool in it, have besides their texts of variable length.
const (
	rowOverhead      = 500
	disabledOverhead = 24
)

// sessionSize is about how many bytes a session has in a list, without its tools.
func sessionSize(s registry.Session) int {
	size := rowOverhead + len(s.Name) + len(s.DeviceID) + len(s.DeviceName) + len(s.UserID) + len(s.Platform)
	size += namesSize(s.Capabilities)
	for k, v := range s.Labels {
		size += len(k) + len(v) + 8
	}
	return size
}

func namesSize(names []string) (size int) {
	for _, name := range names {
		size += len(name) + 4
	}
	return size
}
