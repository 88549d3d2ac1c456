package api

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/registry"
)

// maxQueueListed is how many calls of a queue are listed.
const maxQueueListed = 1000

// listQueue lists the calls that wait for a device, which its device id names. A caller whose credentials name a user
// sees only calls of that user.
func (h *handler) listQueue(c *gin.Context, _ *params) error {
	who, ctx := caller(c), storeContext(c)
	known, err := h.sleeping(ctx, who, registry.Target{DeviceID: c.Param("id")})
	if err != nil {
		return err
	}
	if len(known) == 0 || h.Queue == nil {
		return registry.ErrUnknownDevice
	}
	list := wire.QueuedCalls{Calls: []wire.CallRecord{}}
	for _, d := range known {
		waiting, err := h.Queue.Queued(ctx, who.Tenant, d.Session.DeviceKey(), maxQueueListed)
		if err != nil {
			return err
		}
		for i, r := range waiting {
			if who.Viewer() == "" || r.UserID == who.Viewer() {
				shown := summaryOf(r)
				shown.Position = i + 1
				list.Calls = append(list.Calls, shown)
			}
		}
	}
	return h.respond(c, list)
}

// headerQueue has how long calls of a turn may wait for a sleeping device, in ms.
const headerQueue = "X-Farhand-Queue"

// queueHeader returns how long the calls of a turn, or of an MCP client, may wait for a sleeping device; zero: they may
// not. A time outside the limits fails now, and not with the first call of a tool that was listed for it.
func (h *handler) queueHeader(c *gin.Context) (time.Duration, error) {
	text := c.GetHeader(headerQueue)
	if text == "" {
		return 0, nil
	}
	ttl, err := readMillis("The header "+headerQueue, []byte(text))
	if err != nil {
		return 0, err
	}
	return ttl, registry.CheckQueueTTL(ttl, h.QueueTTL)
}

// sleeping returns the known devices that match a target.
func (h *handler) sleeping(
	ctx context.Context, who auth.Identity, target registry.Target,
) ([]registry.KnownDevice, error) {
	if h.Devices == nil {
		return nil, nil
	}
	target.Viewer = who.Viewer()
	known, _, err := h.Devices.KnownDevices(ctx, registry.KnownQuery{
		Tenant: who.Tenant, Target: target, Limit: sameDevice,
	})
	return known, err
}

// Values of presence.
const (
	presenceConnected = "connected"
	presenceSleeping  = "sleeping"
	presenceAny       = "any"
)

// presence returns which devices a list has; empty: not asked for, the connected ones.
func (p *params) presence() string {
	return p.oneOf("presence", presenceConnected, presenceSleeping, presenceAny)
}

const (
	sleepingPage  = 50 // known devices that are read at a time
	sleepingReads = 8  // of them that are looked for at a time
	sameDevice    = 16 // sessions of one device id that are compared
)

// eachSleeping calls row for the devices that match a target and are not connected, until it returns false. It returns
// where the list goes on; zero: nowhere.
func (h *handler) eachSleeping(
	ctx context.Context, who auth.Identity, target registry.Target, from cursor, row func(registry.KnownDevice) bool,
) (next cursor, err error) {
	if h.Devices == nil {
		return cursor{}, nil
	}
	target.Viewer = who.Viewer()
	at := cursor{Kind: from.Kind, Asleep: true, Skip: from.Skip}
	for range maxPages {
		found, more, err := h.Devices.KnownDevices(ctx, registry.KnownQuery{
			Tenant: who.Tenant, Target: target, Skip: at.Skip, Limit: sleepingPage,
		})
		if err != nil {
			return cursor{}, err
		}
		connected, err := h.connected(ctx, found)
		if err != nil {
			return cursor{}, err
		}
		for i, d := range found {
			if !connected[i] && !row(d) {
				at.Skip = d.After
				return at, nil
			}
		}
		if at.Skip = more; more == 0 {
			return cursor{}, nil
		}
	}
	return at, nil
}

// connected reports for each device whether it has a connection. A connection of its session also counts: a device that
// was paired later is remembered as what it was before, under the same session.
func (h *handler) connected(ctx context.Context, devices []registry.KnownDevice) ([]bool, error) {
	connected := make([]bool, len(devices))
	err := parallel.Each(len(devices), sleepingReads, func(i int) error {
		s := &devices[i].Session
		found, _, err := h.Directory.List(ctx, registry.Query{
			Tenant: s.Tenant, Target: registry.Target{DeviceID: s.DeviceID}, Limit: sameDevice,
		})
		for _, e := range found {
			connected[i] = connected[i] || e.Session.DeviceKey() == s.DeviceKey() || e.Session.Key == s.Key
		}
		return err
	})
	return connected, err
}

// listToolsOf serves the flat list of tools for a presence: the connected devices first, then the sleeping ones.
func (h *handler) listToolsOf(c *gin.Context, q *params, presence string) error {
	tq, from := q.toolQuery(caller(c)), q.cursor(cursorTools)
	if err := q.failed(); err != nil {
		return err
	}
	ctx, page := storeContext(c), wire.ToolList{Tools: []wire.ToolRow{}}
	if err := h.reserveAnswer(ctx, c, pageCost); err != nil {
		return err
	}
	var err error
	if presence != presenceSleeping && !from.Asleep {
		if page, err = h.flat(ctx, tq, from); err != nil {
			return err
		}
		for i := range page.Tools {
			if page.Tools[i].SourceType == sourceRemote {
				page.Tools[i].Presence = presenceConnected
			}
		}
	}
	if presence != presenceConnected && page.NextCursor == "" && tq.from(sourceRemote) {
		if err = h.sleepingTools(ctx, tq, from, &page); err != nil {
			return err
		}
	}
	return h.respond(c, page)
}

// sleepingTools adds the tools of sleeping devices to a page.
func (h *handler) sleepingTools(ctx context.Context, tq toolQuery, from cursor, page *wire.ToolList) error {
	size := 0
	next, err := h.eachSleeping(ctx, tq.who, tq.target, from, func(d registry.KnownDevice) bool {
		s := d.Session
		for _, t := range d.Tools {
			if !tq.matches(t) {
				continue
			}
			size += t.Size() + sessionSize(s)
			page.Tools = append(page.Tools, wire.ToolRow{
				Tool: h.toolInfoOf(direct(tq.who), t, nil), SourceType: sourceRemote, Source: s.Key.Session,
				SessionID: s.Key.Session, DeviceID: s.DeviceID, DeviceName: s.DeviceName, UserID: s.UserID,
				Labels: s.Labels, Presence: presenceSleeping, LastSeen: shownTime(d.LastSeen),
			})
		}
		return len(page.Tools) < tq.limit && size < pageBytes
	})
	if err == nil && next != (cursor{}) {
		page.NextCursor = next.String()
	}
	return err
}

// sleepingSessions adds sleeping devices to a page of sessions, by their last session.
func (h *handler) sleepingSessions(
	ctx context.Context, by agent.Asker, q registry.Query, from cursor, page *wire.SessionList,
) error {
	next, err := h.eachSleeping(ctx, by.Who, q.Target, from, func(d registry.KnownDevice) bool {
		row := wire.SessionRow{
			SessionAttributes: attributesOf(&registry.Entry{Session: d.Session}), Presence: presenceSleeping,
			LastSeen: shownTime(d.LastSeen), Tools: []string{},
		}
		row.Connected, row.Online, row.ConnectedAt = false, false, ""
		row.CreatedAt, row.LastActivity = row.LastSeen, row.LastSeen
		offers := q.Tool == ""
		for _, t := range d.Tools {
			row.Tools = append(row.Tools, t.Name)
			offers = offers || t.Name == q.Tool
		}
		if offers {
			page.Sessions = append(page.Sessions, row)
		}
		return len(page.Sessions) < q.Limit
	})
	if err == nil && next != (cursor{}) {
		page.NextCursor = next.String()
	}
	return err
}

// listSessionsOf serves the list of sessions for a presence: the connected ones first, then the sleeping devices.
func (h *handler) listSessionsOf(c *gin.Context, q *params, presence string) error {
	by, from := direct(caller(c)), q.cursor(cursorSessions)
	query := registry.Query{Tenant: by.Who.Tenant, Target: q.target(), Tool: q.toolName("tool"), Limit: q.limit()}
	if q.has("connected") {
		return registry.Errorf(registry.CodeInvalidRequest, "presence cannot be combined with connected.")
	}
	if err := q.failed(); err != nil {
		return err
	}
	ctx, page := storeContext(c), wire.SessionList{Sessions: []wire.SessionRow{}}
	if err := h.reserveAnswer(ctx, c, pageCost); err != nil {
		return err
	}
	var err error
	if presence != presenceSleeping && !from.Asleep {
		if page, err = h.sessionPage(ctx, by, q); err != nil {
			return err
		}
		for i := range page.Sessions {
			page.Sessions[i].Presence = presenceConnected
		}
	}
	if presence != presenceConnected && page.NextCursor == "" {
		if err = h.sleepingSessions(ctx, by, query, from, &page); err != nil {
			return err
		}
	}
	return h.respond(c, page)
}
