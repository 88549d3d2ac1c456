package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// maxOrdered is how many ordered calls whose turn has come a pod delivers at once.
const maxOrdered = 4096

// lines has the ordered calls of this pod's sessions: those that run, and those that wait until the calls before them
// have ended. A session's lines outlive its connection, because its calls in flight do. It is safe for concurrent use.
// Its mutex is taken after all others.
type lines struct {
	most  int                                            // calls of one session
	start func(registry.Key, func(context.Context)) bool // starts a task

	mu    sync.Mutex
	calls map[lineID][]*inFlightCall // never empty; all but the first wait
	ofKey map[registry.Key]int       // how many calls a session has in lines; never zero
}

// lineID identifies a line: of a session or, with a tool, of one of its tools.
type lineID struct {
	key  registry.Key
	tool string
}

// place is the place of a call in a line. The fields from begun on are guarded by lines.mu.
type place struct {
	lines *lines
	id    lineID
	since time.Time             // when the call was accepted
	turn  func(context.Context) // delivers the call

	begun bool // its turn has come
	left  bool // it left before its turn
}

// place returns a place for a call that is about to join, nil if the call has no order. age is how long ago the call
// was accepted.
func (o *lines) place(key registry.Key, tool string, order registry.Order, age time.Duration) *place {
	if order == registry.OrderNone {
		return nil
	}
	p := &place{lines: o, id: lineID{key: key}, since: time.Now().Add(-age)}
	if order == registry.OrderTool {
		p.id.tool = tool
	}
	return p
}

// join adds a call to its line: behind the calls that were accepted before it. It reports whether the call must wait;
// then its turn comes later, in a task.
func (o *lines) join(f *inFlightCall) (waits bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofKey[f.key] >= o.most {
		return false, registry.Errorf(registry.CodeBusy, "The device already has %d ordered calls. Wait for some to "+
			"finish.", o.most).RetryIn(time.Second).With(registry.DispatchedNo)
	}
	if o.calls == nil {
		o.calls, o.ofKey = make(map[lineID][]*inFlightCall), make(map[registry.Key]int)
	}
	line := o.calls[f.place.id]
	at := len(line)
	for at > 0 && !line[at-1].place.begun && line[at-1].place.since.After(f.place.since) {
		at--
	}
	if f.place.begun = len(line) == 0; f.place.begun {
		f.place.turn = nil // it holds the arguments
	}
	o.calls[f.place.id] = slices.Insert(line, at, f)
	o.ofKey[f.key]++
	return !f.place.begun, nil
}

// leave removes a call that has ended. If it was the first of its line, the turn of the next one comes.
func (o *lines) leave(f *inFlightCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := o.calls[f.place.id]
	at := slices.Index(line, f)
	if at < 0 {
		return
	}
	f.place.left = !f.place.begun
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		delete(o.calls, f.place.id)
	} else {
		o.calls[f.place.id] = line
	}
	if o.ofKey[f.key]--; o.ofKey[f.key] == 0 {
		delete(o.ofKey, f.key)
	}
	if len(line) > 0 && !line[0].place.begun { // if no task is free, its caller times out, and the line goes on
		next := line[0]
		if next.place.begun = o.start(next.key, next.place.turn); next.place.begun {
			next.place.turn = nil
		}
	}
}

// leftWaiting reports whether a call ended before its turn came.
func (f *inFlightCall) leftWaiting() bool {
	if f.place == nil {
		return false
	}
	f.place.lines.mu.Lock()
	defer f.place.lines.mu.Unlock()
	return f.place.left
}
