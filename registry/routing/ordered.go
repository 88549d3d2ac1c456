package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// maxOrdered is how many ordered calls whose turn has come a pod delivers at once.
const maxOrdered = 4096

// orderedCalls has the ordered calls of this pod's sessions: those that run, and those that wait until the calls before
// them have ended. A session's lines outlive its connection, because its calls in flight do. It is safe for concurrent
// use. Its mutex is taken after all others.
type orderedCalls struct {
	most  int                                           // calls of one session
	start func(share.Owner, func(context.Context)) bool // starts a task

	mu    sync.Mutex
	calls map[orderID][]*inFlightCall // never empty; all but the first wait
	ofKey map[registry.Key]int        // how many calls a session has in lines; never zero
}

// orderID identifies a line: of a session or, with a tool, of one of its tools.
type orderID struct {
	key  registry.Key
	tool string
}

// turn is the turn of a call in a line: calls that run one after the other. The fields from begun on are guarded by
// orderedCalls.mu.
type turn struct {
	of    *orderedCalls
	id    orderID
	since time.Time             // when the call was accepted
	begin func(context.Context) // delivers the call

	begun bool // its turn has come
	left  bool // it left before its turn
}

// newTurn returns the turn of a call that is about to join, nil if the call has no order. age is how long ago the call
// was accepted.
func (o *orderedCalls) newTurn(key registry.Key, tool string, order registry.Order, age time.Duration) *turn {
	if order == registry.OrderNone {
		return nil
	}
	p := &turn{of: o, id: orderID{key: key}, since: time.Now().Add(-age)}
	if order == registry.OrderTool {
		p.id.tool = tool
	}
	return p
}

// join adds a call to its line: behind the calls that were accepted before it. It reports whether the call must wait;
// then its turn comes later, in a task.
func (o *orderedCalls) join(f *inFlightCall) (waits bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofKey[f.key] >= o.most {
		return false, registry.Errorf(registry.CodeBusy, "The device already has %d ordered calls. Wait for some to "+
			"finish.", o.most).RetryIn(time.Second).With(registry.DispatchedNo)
	}
	if o.calls == nil {
		o.calls, o.ofKey = make(map[orderID][]*inFlightCall), make(map[registry.Key]int)
	}
	line := o.calls[f.turn.id]
	at := len(line)
	for at > 0 && !line[at-1].turn.begun && line[at-1].turn.since.After(f.turn.since) {
		at--
	}
	if f.turn.begun = len(line) == 0; f.turn.begun {
		f.turn.begin = nil // it holds the arguments
	}
	o.calls[f.turn.id] = slices.Insert(line, at, f)
	o.ofKey[f.key]++
	return !f.turn.begun, nil
}

// leave removes a call that has ended. If it was the first of its line, the turn of the next one comes.
func (o *orderedCalls) leave(f *inFlightCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := o.calls[f.turn.id]
	at := slices.Index(line, f)
	if at < 0 {
		return
	}
	f.turn.left = !f.turn.begun
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		delete(o.calls, f.turn.id)
	} else {
		o.calls[f.turn.id] = line
	}
	if o.ofKey[f.key]--; o.ofKey[f.key] == 0 {
		delete(o.ofKey, f.key)
	}
	if len(line) > 0 && !line[0].turn.begun { // if no task is free, its caller times out, and the line goes on
		next := line[0]
		if next.turn.begun = o.start(next.payer, next.turn.begin); next.turn.begun {
			next.turn.begin = nil
		}
	}
}

// leftWaiting reports whether a call ended before its turn came.
func (f *inFlightCall) leftWaiting() bool {
	if f.turn == nil {
		return false
	}
	f.turn.of.mu.Lock()
	defer f.turn.of.mu.Unlock()
	return f.turn.left
}
