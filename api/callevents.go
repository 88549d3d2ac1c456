package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	// followPause is the pause between two reads of a call's log. It grows up to idlePause while nothing happens. The
	// log is polled, because pods notify each other only of a call's end. A message for each line would cost more than
	// reading the few calls that are followed.
	followPause = 250 * time.Millisecond
	idlePause   = time.Second
	idleReads   = 2

	// endPause is the pause for a finished call, whose log lags a moment behind its record. After endTimeout the stream
	// ends without the rest of the log.
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
func (h *handler) callEvents(c *gin.Context, q params) error {
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
	if err := h.checkCallSoon(c, f.id); err != nil {
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

// checkCallSoon is checkCall with storeTimeout.
func (h *handler) checkCallSoon(c *gin.Context, id string) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	return h.checkCall(ctx, caller(c), id)
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

// writeAll writes events until the call has ended.
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
		if !pause(ctx, wait) {
			return nil
		}
		if err := f.readLog(ctx); registry.IsCallNotFound(err) {
			return nil // the record has expired
		} else if err != nil {
			f.events = nil // the client stays connected until the store is available
		}
	}
}

// write writes the events that readLog has read.
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

// releaseEvents releases the reservation of the events.
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
