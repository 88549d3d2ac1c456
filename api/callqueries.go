package api

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// maxWait is the maximum time that a request waits for the end of a call. To wait longer, a caller asks again.
const maxWait = time.Minute

var callIDPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (h *handler) listCalls(c *gin.Context, q *params) error {
	who := caller(c)
	query, err := callQuery(who, q)
	if err != nil {
		return err
	}
	var records []registry.Record
	next := ""
	if who.Viewer() == "" || query.UserID == who.Viewer() { // calls of other users look like calls that do not exist
		if records, next, err = h.Calls.List(storeContext(c), query); err != nil {
			return err
		}
	}
	return h.respond(c, wire.CallList{Calls: each(records, summaryOf), NextCursor: nextCursor(cursorCalls, next)})
}

func callQuery(who auth.Identity, q *params) (registry.CallQuery, error) {
	states := each(registry.States(), func(s registry.State) string { return string(s) })
	return registry.CallQuery{
		Tenant: who.Tenant, UserID: cmp.Or(q.get("user"), who.Viewer()), DeviceID: q.get("device_id"),
		Parent: q.get("parent"), State: registry.State(q.oneOf("state", states...)), Tool: q.toolName("tool"),
		SessionID: q.sessionID(),
		Pod:       q.get("pod"), From: q.time("from"), To: q.time("to"), Limit: q.limit(),
		Before: q.cursor(cursorCalls).Name,
	}, q.failed()
}

// getCall returns one call: immediately, or when the call or the wait ends.
func (h *handler) getCall(c *gin.Context, q *params) error {
	wait, release, err := h.beginWait(c, q)
	if err != nil {
		return err
	}
	defer release()
	return h.showCall(c, wait+storeTimeout, func(ctx context.Context, tenant, id string) (registry.Record, error) {
		if wait > 0 { // waiting requests reserve nothing, so a long record is dropped and read again
			rec, err := h.waitFor(ctx, tenant, id, wait)
			if err != nil || rec.Result == nil || rec.MemorySize() <= smallResponse {
				return rec, err
			}
		}
		if err := h.reserveAnswer(ctx, c, recordCost); err != nil {
			return registry.Record{}, err
		}
		return h.Calls.Get(ctx, tenant, id)
	})
}

// beginWait returns how long the client wants to wait, and takes a slot for it, until release is called.
func (h *handler) beginWait(c *gin.Context, q *params) (wait time.Duration, release func(), err error) {
	wait = time.Duration(q.number("wait_ms", 0, int(maxWait.Milliseconds()), 0)) * time.Millisecond
	if err := q.failed(); err != nil {
		return 0, nil, err
	}
	release = func() {}
	if wait > 0 {
		if release, err = h.waiting.enter(h.owner(c)); err != nil {
			return 0, nil, err
		}
	}
	finishWritingBy(c, time.Now().Add(wait+writeTimeout))
	return wait, release, nil
}

// cancelCall cancels a call, on any pod. Cancelling a finished call has no effect.
func (h *handler) cancelCall(c *gin.Context, _ *params) error {
	return h.showCall(c, storeTimeout, func(ctx context.Context, tenant, id string) (registry.Record, error) {
		rec, err := h.Calls.Cancel(ctx, tenant, id)
		if err == nil {
			h.withdrawApproval(ctx, rec)
		}
		return rec, err
	})
}

// showCall answers with the record that read returns for the call in the path.
func (h *handler) showCall(
	c *gin.Context, timeout time.Duration, read func(ctx context.Context, tenant, id string) (registry.Record, error),
) error {
	id, err := callID(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), timeout)
	defer cancel()
	if err := h.checkCall(ctx, caller(c), id); err != nil {
		return err
	}
	r, err := read(ctx, caller(c).Tenant, id)
	if err != nil {
		return err
	}
	shown := recordOf(r)
	if r.State == registry.StateQueued && h.Queue != nil {
		if shown.Position, err = h.Queue.Position(ctx, &r); err != nil {
			return err
		}
	}
	if c.Request.Method == http.MethodDelete {
		return h.writeUncached(c, http.StatusOK, shown) // the answer to a change must not be cached
	}
	return h.respond(c, shown)
}

// checkCall checks that a call exists for the caller. A caller whose credentials name a user sees only calls of that
// user. Calls without a user are not visible to such callers, because their arguments and results are not public.
func (h *handler) checkCall(ctx context.Context, who auth.Identity, id string) error {
	viewer := who.Viewer()
	if viewer == "" {
		return nil
	}
	switch r, err := h.Calls.Get(ctx, who.Tenant, id); {
	case err != nil:
		return err
	case r.UserID != viewer:
		return registry.ErrNoCall
	}
	return nil
}

// callID returns the id of the call in the path. An impossible id is unknown; it is not sent to the store.
func callID(c *gin.Context) (string, error) {
	id := c.Param("id")
	if !callIDPattern.MatchString(id) {
		return "", registry.ErrNoCall
	}
	return id, nil
}

// waitFor waits for the end of a call. It returns early when the pod begins to drain, because its caller can continue
// to wait at another pod.
func (h *handler) waitFor(ctx context.Context, tenant, id string, wait time.Duration) (registry.Record, error) {
	waiting, stop := h.untilDraining(ctx)
	defer stop()
	rec, err := h.Calls.Wait(waiting, tenant, id, wait)
	if waiting.Err() != nil { // the canceled wait may have returned an error
		return h.Calls.Wait(ctx, tenant, id, 0)
	}
	return rec, err
}

const (
	// followPause is the pause between two reads of a call's log. It grows up to idlePause while nothing happens. The
	// log is polled, because pods notify each other only of a call's end. A message for each line would cost more than
	// reading the few calls that are followed.
	followPause = 250 * time.Millisecond
	idlePause   = time.Second
	idleReads   = 2

	// endPause is the pause for a finished call, whose log may lag behind its record. After endTimeout the stream ends
	// without the rest of the log.
	endPause   = 50 * time.Millisecond
	endTimeout = time.Second

	// onlyEventID is the id of the only event of a finished call without a log.
	onlyEventID = "0-1"
)

func callEventOf(e registry.CallEvent) wire.CallEvent {
	return wire.CallEvent{
		CallID: e.CallID, Type: e.Type, State: e.State, Progress: e.Progress, Total: e.Total, Message: e.Message,
		Chunk: e.Chunk, At: shownTime(e.At),
	}
}

// follower follows one call to its end.
type follower struct {
	calls Calls
	by    share.Owner
	id    string
	after string // the last event that the client has received

	budget *byteBudget
	held   *reservation         // for the events; nil if there are none
	events []registry.CallEvent // after f.after
	rec    registry.Record
	sent   bool // the client has the event of rec's final state
}

// callEvents streams the events of one call until it has ended. A reconnecting client continues where it was.
func (h *handler) callEvents(c *gin.Context, q *params) error {
	f := &follower{calls: h.Calls, budget: h.responses, by: h.owner(c)}
	defer f.releaseEvents()
	var err error
	if f.id, err = callID(c); err == nil {
		f.after, err = lastEventID(c, q)
	}
	if err != nil {
		return err
	}
	release, err := h.reserveStream(f.by)
	if err != nil {
		return err
	}
	defer release()
	if err := h.checkCall(storeContext(c), caller(c), f.id); err != nil {
		return err
	}
	if err := f.begin(c.Request.Context()); err != nil {
		return err
	}
	if f.sent { // there will be no more, and only 204 stops an EventSource from reconnecting
		c.Status(http.StatusNoContent)
		return nil
	}
	h.serveStream(c, f.writeAll)
	return nil
}

// readLog reads the next events and the record. It reads the log first, so the record is never older. The events stay
// reserved until they are written.
func (f *follower) readLog(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if f.held, err = f.budget.reserve(ctx, f.by, logCost); err != nil {
		return err
	}
	defer func() {
		if len(f.events) == 0 {
			f.releaseEvents()
		}
	}()
	f.events, f.rec, err = f.calls.Events(ctx, f.by.Tenant, f.id, f.after)
	return err
}

// begin reads for the first time, and checks whether a reconnecting client has already received the end.
func (f *follower) begin(ctx context.Context) error {
	if err := f.readLog(ctx); err != nil {
		return err
	}
	if f.after == "" || len(f.events) > 0 || !f.rec.State.Final() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for after := ""; ; {
		page, _, err := f.calls.Events(ctx, f.by.Tenant, f.id, after)
		hadOnlyEvent := len(page) == 0 && after == "" && f.after == onlyEventID
		f.sent = f.sent || hadOnlyEvent || slices.ContainsFunc(page, f.isOfState)
		if err != nil || f.sent || len(page) < registry.EventPage {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// isOfState reports whether an event has the record's state.
func (f *follower) isOfState(e registry.CallEvent) bool { return e.State == f.rec.State }

func (f *follower) writeAll(ctx context.Context, s *ssewriter.Stream) error {
	var ended time.Time // when the record was first seen to be final
	idle := 0           // reads since the last event
	for {
		if len(f.events) > 0 {
			idle = 0
		}
		more := len(f.events) == registry.EventPage
		if err := f.write(s); err != nil {
			return err
		}
		wait := min(followPause<<idle, idlePause)
		idle = min(idle+1, idleReads)
		if f.rec.State.Final() {
			if ended.IsZero() {
				ended = time.Now()
			}
			if f.sent || f.neverLogged() || !more && time.Since(ended) >= endTimeout {
				return f.finish(s)
			}
			wait = endPause
		}
		if more {
			wait = 0
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
		if err := f.readLog(ctx); registry.IsCallNotFound(err) {
			return nil // the record has expired
		} else if err != nil {
			f.events = nil // the client stays connected until the store is available
		}
	}
}

func (f *follower) write(s *ssewriter.Stream) error {
	for _, e := range f.events {
		if err := s.Put(e.ID, e.Type, callEventOf(e)); err != nil {
			return err
		}
		f.after, f.sent = e.ID, f.sent || f.rec.State.Final() && f.isOfState(e)
		if s.Buffered() < smallResponse {
			continue
		}
		if err := f.flush(s); err != nil {
			return err
		}
	}
	err := f.flush(s)
	f.events = nil
	f.releaseEvents()
	return err
}

// flush writes the buffered events. It fails if the client did not read and was disconnected for others.
func (f *follower) flush(s *ssewriter.Stream) error {
	if f.held != nil && !f.held.nextPart(s.Controller()) {
		return errTooSlow
	}
	return s.Flush()
}

func (f *follower) releaseEvents() {
	if f.held != nil {
		f.held.release()
		f.held = nil
	}
}

// neverLogged reports whether the call was too short for a log, as most are.
func (f *follower) neverLogged() bool { return f.after == "" && f.rec.Deadline.IsZero() }

// finish sends the final state of the call, unless the log had it.
func (f *follower) finish(s *ssewriter.Stream) error {
	if f.sent {
		return nil
	}
	id := ""
	if f.after == "" {
		id = onlyEventID
	}
	e := registry.CallEvent{CallID: f.id, Type: registry.CallEventState, State: f.rec.State}
	if n := len(f.rec.Timeline); n > 0 {
		e.At = f.rec.Timeline[n-1].At
	}
	if err := s.Put(id, e.Type, callEventOf(e)); err != nil {
		return err
	}
	return s.Flush()
}
