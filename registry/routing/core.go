package routing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// core is what the parts of a pod share.
type core struct {
	pod    string // its id
	store  registry.Store
	bus    registry.Bus
	calls  *callBudget // the records of calls
	rec    *recorder
	tasks  *tasks
	counts *counters
	log    *slog.Logger
	tracer trace.Tracer

	logBytes int64 // of the log of one call
}

// send sends an envelope to a pod.
func (c *core) send(ctx context.Context, pod string, e registry.Envelope) error {
	e.V = registry.EnvelopeVersion
	return c.bus.Send(ctx, pod, e)
}

// trySend is send for an envelope that may be lost.
func (c *core) trySend(ctx context.Context, pod string, e registry.Envelope) {
	if err := c.send(ctx, pod, e); err != nil {
		c.log.Debug("message not delivered",
			"kind", e.Kind, "session", e.Session, "call", e.CallID, "pod", pod, "error", err)
	}
}

// trySendAll is trySend to all other live pods. A pod that is dead misses nothing.
func (c *core) trySendAll(ctx context.Context, e registry.Envelope) error {
	pods, err := c.store.Live(ctx)
	for _, pod := range pods {
		if pod != c.pod {
			c.trySend(ctx, pod, e)
		}
	}
	return err
}

// tryReply sends a reply that may be lost.
func (c *core) tryReply(pod string, r registry.Reply) {
	r.V = registry.EnvelopeVersion
	if err := c.bus.Reply(pod, r); err != nil {
		c.log.Debug("reply not sent", "call", r.CallID, "pod", pod, "error", err)
	}
}

// notifyWatchers tells the pods that watch a call that it is final. A pod that misses the message reads the record
// again after watchPause.
func (c *core) notifyWatchers(m registry.Moved) {
	for _, pod := range m.Watchers {
		c.tryReply(pod, registry.Reply{CallID: m.Record.CallID, Wake: true})
	}
}

// noteSession adds a line about a session to the feed.
func (c *core) noteSession(kind string, s *registry.Session, tools ...string) {
	c.rec.activity(registry.Activity{
		Tenant: s.Tenant, Type: kind, SessionID: s.Key.Session, DeviceID: s.DeviceID, UserID: s.UserID, Tools: tools,
	})
}

// noteEnd adds the end of a call to the feed. The caller must not use rec afterwards.
func (c *core) noteEnd(rec *registry.Record) {
	c.rec.activity(registry.Activity{
		Tenant: rec.Tenant, Type: registry.ActivityCall, SessionID: rec.SessionID, DeviceID: rec.DeviceID, Call: rec,
	})
}

// noteQueued adds to the feed that a call waits for its device.
func (c *core) noteQueued(rec *registry.Record) {
	summary := rec.Clone().Summary()
	c.rec.activity(registry.Activity{
		Tenant: rec.Tenant, Type: registry.ActivityCallQueued, SessionID: rec.SessionID, DeviceID: rec.DeviceID,
		Call: &summary,
	})
}

// errVersions is the error for a message of a release that this one does not understand.
func errVersions() *registry.Error {
	return registry.Errorf(registry.CodeInternal,
		"The pods run versions that do not understand each other. Retry shortly.").With(registry.DispatchedNo)
}

// listeners is a table of goroutines that wait for news of a call or a ping, by id. The zero value is ready to use.
type listeners[T any] struct {
	mu   sync.Mutex
	byID map[string]map[chan T]struct{}
}

// listen returns a channel that gets the values of notify for the id from now on, and a function that ends this. The
// channel holds capacity values; further values are dropped.
func (l *listeners[T]) listen(id string, capacity int) (news <-chan T, stop func()) {
	c := make(chan T, capacity)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = make(map[string]map[chan T]struct{})
	}
	if l.byID[id] == nil {
		l.byID[id] = make(map[chan T]struct{})
	}
	l.byID[id][c] = struct{}{}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.byID[id], c)
		if len(l.byID[id]) == 0 {
			delete(l.byID, id)
		}
	}
}

// notify sends v to all listeners of the id. It does not block.
func (l *listeners[T]) notify(id string, v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.byID[id] {
		select {
		case c <- v:
		default:
		}
	}
}

// callLog is what a pod has added to the log of one call. It is safe for concurrent use.
type callLog struct {
	user string // the caller's, whose budget is also charged; empty: none

	mu    sync.Mutex
	bytes int64
	full  bool
	last  int64 // the recorder's number of the last line; zero: none
}

func (l *callLog) note(line int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = max(l.last, line)
}

func (l *callLog) lastLine() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// report adds a device's or a tool's report to the log of a call, within the limits of the log and of the budget. After
// the first report that does not fit, all later ones are also dropped, because a reader could not see a gap in the log.
// For the first one, report logs and returns the error of refuse.
func (c *core) report(
	l *callLog, of registry.Key, callID string, r registry.Report, refuse func(tooLong bool) *registry.Error,
) error {
	if r.Progress == nil && r.Message == "" && r.Chunk == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return nil
	}
	l.bytes += jsonSize(r.Message) + jsonSize(r.Chunk)
	tooLong := l.bytes > c.logBytes
	if !tooLong && c.calls.logSpent(of, l.user) == 0 {
		l.last = c.rec.event(registry.CallEvent{
			Tenant: of.Tenant, Session: of.Session, UserID: l.user, CallID: callID, Type: registry.CallEventProgress,
			Progress: r.Progress, Total: r.Total, Message: r.Message, Chunk: r.Chunk,
		})
		return nil
	}
	l.full = true
	refused := refuse(tooLong)
	l.last = c.rec.event(registry.CallEvent{
		Tenant: of.Tenant, CallID: callID, Type: registry.CallEventTruncated, Message: refused.Message,
	})
	return refused
}

// logWait is how long an answer waits for the writing of earlier reports, because the end of a call closes its log.
const logWait = 250 * time.Millisecond
