package api

import (
	"context"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// turnStream writes what happens in a turn while it happens. The answer begins with the first event, or after a moment
// with a comment: until then a failure can still be told with a status of its own, which clients and load balancers act
// upon, and whoever waits longer must see that there is somebody. It is safe for concurrent use.
type turnStream struct {
	open func() (*stream, error)
	stop context.CancelFunc // ends the turn

	mu  sync.Mutex
	out *stream // nil until the answer has begun
	err error   // of writing: the client is gone or too slow
}

// ending is how the stream of a turn ends: with a failure if nothing was written yet, else with what tell writes.
type ending struct {
	failure error
	tell    func(*turnStream)
}

// streamTurn has run write a turn's events, and shows between them that the stream lives. A client that goes, or does
// not read, ends the context run gets.
func (h *handler) streamTurn(ctx context.Context, c *gin.Context, run func(context.Context, *turnStream) ending) {
	release, err := h.reserveTurn()
	if err != nil {
		h.fail(c, err)
		return
	}
	defer release()
	ctx, stop := context.WithCancel(ctx)
	t := &turnStream{open: func() (*stream, error) { return openStream(c) }, stop: stop}
	end := h.beating(ctx, t, run)
	if end.failure != nil && t.out == nil {
		h.fail(c, end.failure)
		return
	}
	end.tell(t)
	if t.out != nil {
		t.out.writeBy(time.Now().Add(streamWriteTimeout)) // the end of the answer has to be written too
	}
	if t.err != nil {
		h.Log.Debug("turn cut off", "route", c.FullPath(), "error", t.err)
	}
}

// beating runs a turn. When it returns, nobody else touches the answer.
func (h *handler) beating(ctx context.Context, t *turnStream, run func(context.Context, *turnStream) ending) ending {
	var heart sync.WaitGroup
	heart.Go(func() {
		for wait := h.StreamGrace; pause(ctx, wait); {
			wait = t.beat()
		}
	})
	defer heart.Wait()
	defer t.stop()
	return run(ctx, t)
}

// send writes one event at once, without a name if that is empty. After a failure to write it does nothing.
func (t *turnStream) send(name string, data any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begin() {
		return
	}
	t.check(t.out.put("", name, data))
	t.check(t.out.flush())
}

// sendText writes an event whose data is text as it is, on one line.
func (t *turnStream) sendText(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begin() {
		return
	}
	t.out.buffer.WriteString("data: " + text + "\n\n")
	t.check(t.out.flush())
}

// beat begins the answer, or writes a sign of life if nothing was written for long. It returns when to come back.
func (t *turnStream) beat() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.out != nil
	if !t.begin() {
		return heartbeat
	}
	if !begun {
		t.out.buffer.WriteString(comment)
	}
	t.check(t.out.flush())
	return max(t.out.silence(), time.Millisecond)
}

// alive writes a sign of life at once: something has happened that is not told.
func (t *turnStream) alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begin() {
		t.out.buffer.WriteString(comment)
		t.check(t.out.flush())
	}
}

// begin reports whether there is somebody to write to.
func (t *turnStream) begin() bool {
	if t.out == nil && t.err == nil {
		out, err := t.open()
		t.check(err)
		t.out = out
	}
	return t.err == nil
}

func (t *turnStream) check(err error) {
	if err != nil && t.err == nil {
		t.err = err
		t.stop()
	}
}
