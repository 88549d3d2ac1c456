package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/sse"
	"github.com/farhand/farhand/registry"
)

const (
	// followPause is how long after one look at a call's log the next follows. It grows up to idlePause while nothing happens.
	// endPause is that for a call that has ended, whose log lags a moment behind its record. When endPatience has passed the
	// log is not waited for any more.
	followPause = 250 * time.Millisecond
	idlePause   = time.Second
	idleLooks   = 2
	endPause    = 50 * time.Millisecond
	endPatience = time.Second

	// onlyEventID is the id of the one event of a call that has ended without a log.
	onlyEventID = "0-1"
)

// callEvent is a line of a call's log as clients see it.
type callEvent struct {
	CallID   string         `json:"call_id"`
	Type     string         `json:"type"`
	State    registry.State `json:"state,omitempty"`
	Progress *float64       `json:"progress,omitempty"`
	Total    *float64       `json:"total,omitempty"`
	Message  string         `json:"message,omitempty"`
	Chunk    string         `json:"chunk,omitempty"`
	At       string         `json:"at"`
}

func callEventOf(e registry.CallEvent) callEvent {
	return callEvent{
		CallID: e.CallID, Type: e.Type, State: e.State, Progress: e.Progress, Total: e.Total, Message: e.Message,
		Chunk: e.Chunk, At: shownTime(e.At),
	}
}

// follower follows one call to its end.
type follower struct {
	calls  Calls
	tenant string
	id     string
	after  string // the last event the client has

	room   *room
	held   *hold                // room for the events; nil if there are none
	events []registry.CallEvent // behind after
	rec    registry.Record
	told   bool // the client knows the state rec is in
}

// callEvents streams what happens to one call, from the beginning or from where the client was, until the call has
// ended.
func (h *handler) callEvents(c *gin.Context, q params) {
	f := &follower{calls: h.Calls, room: h.responses, tenant: caller(c).Tenant}
	defer f.leave()
	var err error
	if f.id, err = callID(c); err == nil {
		f.after, err = lastEventID(c, q)
	}
	if err != nil {
		h.fail(c, err)
		return
	}
	release, err := h.reserveStream(c)
	if err != nil {
		h.fail(c, err)
		return
	}
	defer release()
	if err := f.begin(c.Request.Context()); err != nil {
		h.fail(c, err)
		return
	}
	if f.told { // there will never be more, and 204 is what keeps an EventSource from asking again and again
		c.Status(http.StatusNoContent)
		return
	}
	h.serveStream(c, f.run)
}

// look reads what has happened. The log is read before the record, so the record is never older. There must be room for what it
// reads until that is written.
func (f *follower) look(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if f.held, err = f.room.reserve(ctx, logCost); err != nil {
		return err
	}
	defer func() {
		if len(f.events) == 0 {
			f.leave()
		}
	}()
	f.events, f.rec, err = f.calls.Events(ctx, f.tenant, f.id, f.after)
	return err
}

// begin looks for the first time, and finds out whether a client that comes back has seen the end already.
func (f *follower) begin(ctx context.Context) error {
	if err := f.look(ctx); err != nil {
		return err
	}
	if f.after == "" || len(f.events) > 0 || !f.rec.State.Final() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for after := ""; ; {
		page, _, err := f.calls.Events(ctx, f.tenant, f.id, after)
		f.told = f.told || len(page) == 0 && after == "" && f.after == onlyEventID || slices.ContainsFunc(page, f.tells)
		if err != nil || f.told || len(page) < registry.EventPage {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// tells reports whether an event says that the call is in the state its record has.
func (f *follower) tells(e registry.CallEvent) bool { return e.State == f.rec.State }

// run writes events until the call has ended.
func (f *follower) run(ctx context.Context, s *sse.Stream) error {
	var ended time.Time // when the record was first seen to be final
	idle := 0           // looks since something happened
	for {
		if len(f.events) > 0 {
			idle = 0
		}
		more := len(f.events) == registry.EventPage
		if err := f.write(s); err != nil {
			return err
		}
		wait := min(followPause<<idle, idlePause)
		idle = min(idle+1, idleLooks)
		if f.rec.State.Final() {
			if ended.IsZero() {
				ended = time.Now()
			}
			if f.told || f.neverLogged() || !more && time.Since(ended) >= endPatience {
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
		if err := f.look(ctx); registry.IsCallNotFound(err) {
			return nil // its record has expired
		} else if err != nil {
			f.events = nil // the store will be back; until then the client is kept
		}
	}
}

// write writes the events that were read.
func (f *follower) write(s *sse.Stream) error {
	for _, e := range f.events {
		if err := s.Put(e.ID, e.Type, callEventOf(e)); err != nil {
			return err
		}
		f.after, f.told = e.ID, f.told || f.rec.State.Final() && f.tells(e)
		if s.Buffered() < smallResponse {
			continue
		}
		if err := f.flush(s); err != nil {
			return err
		}
	}
	err := f.flush(s)
	f.events = nil
	f.leave()
	return err
}

// flush writes what was put. Who does not read makes room for others.
func (f *follower) flush(s *sse.Stream) error {
	if f.held != nil && !f.held.nextPart(s.Controller()) {
		return errTooSlow
	}
	return s.Flush()
}

// leave gives up the room for events.
func (f *follower) leave() {
	if f.held != nil {
		f.held.release()
		f.held = nil
	}
}

// neverLogged reports whether the call is one of the many that are too fast to have a log.
func (f *follower) neverLogged() bool { return f.after == "" && f.rec.Deadline.IsZero() }

// finish tells how the call ended, if its log does not.
func (f *follower) finish(s *sse.Stream) error {
	if f.told {
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
