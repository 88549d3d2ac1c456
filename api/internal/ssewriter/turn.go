package ssewriter

import (
	"context"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// TurnStream writes the events of a turn while it runs. The answer begins with the first event, or with a comment after
// a moment. Until then a failure still gets a status of its own, which clients and load balancers act upon. A client
// that waits longer must see that it is served. TurnStream is safe for concurrent use.
type TurnStream struct {
	open func() (*Stream, error)
	stop context.CancelFunc // ends the turn

	mu  sync.Mutex
	out *Stream // nil until the answer has begun
	err error   // of writing: the client is gone or too slow
}

// Ending is the end of a turn's stream. Failure is the answer if nothing was written yet. Otherwise Tell writes the
// end.
type Ending struct {
	Failure error
	Tell    func(*TurnStream)
}

// ServeTurn has run write the events of a turn, and shows between them that the stream lives. The answer begins after
// grace at the latest. The context of run ends when the client leaves or does not read. ServeTurn returns the failure
// that is still to be answered, or the error with which the client went.
func ServeTurn(
	ctx context.Context, c *gin.Context, grace time.Duration, run func(context.Context, *TurnStream) Ending,
) (failure, gone error) {
	ctx, stop := context.WithCancel(ctx)
	t := &TurnStream{open: func() (*Stream, error) { return Open(c) }, stop: stop}
	end := t.runWithHeartbeat(ctx, grace, run)
	if end.Failure != nil && t.out == nil {
		return end.Failure, nil
	}
	end.Tell(t)
	if t.out != nil {
		t.out.Close()
	}
	return nil, t.err
}

// runWithHeartbeat runs a turn. When it returns, no other goroutine touches the answer.
func (t *TurnStream) runWithHeartbeat(
	ctx context.Context, grace time.Duration, run func(context.Context, *TurnStream) Ending,
) Ending {
	var heartbeat sync.WaitGroup
	heartbeat.Go(func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				timer.Reset(t.beat())
			case <-ctx.Done():
				return
			}
		}
	})
	defer heartbeat.Wait()
	defer t.stop()
	return run(ctx, t)
}

// Send writes one event at once. The name may be empty. After a failed write it does nothing.
func (t *TurnStream) Send(name string, data any) {
	t.write(func(out *Stream) error { return out.Put("", name, data) })
}

// SendText writes an event whose data is text as it is, on one line.
func (t *TurnStream) SendText(text string) {
	t.write(func(out *Stream) error {
		out.buffer.WriteString("data: " + text + "\n\n")
		return nil
	})
}

// KeepAlive writes a sign of life at once, for something that happens and has no event.
func (t *TurnStream) KeepAlive() {
	t.write(func(out *Stream) error {
		out.buffer.WriteString(comment)
		return nil
	})
}

// write begins the answer if need be, has put add to it, and flushes it.
func (t *TurnStream) write(put func(*Stream) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begin() {
		t.check(put(t.out))
		t.check(t.out.Flush())
	}
}

// beat begins the answer, or writes a sign of life if the silence was long. It returns when the next one is due.
func (t *TurnStream) beat() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.out != nil
	if !t.begin() {
		return Heartbeat
	}
	if !begun {
		t.out.buffer.WriteString(comment)
	}
	t.check(t.out.Flush())
	return max(t.out.UntilHeartbeat(), time.Millisecond)
}

// begin opens the answer. It reports whether there is a client to write to.
func (t *TurnStream) begin() bool {
	if t.out == nil && t.err == nil {
		out, err := t.open()
		t.check(err)
		t.out = out
	}
	return t.err == nil
}

// check notes the first error, and ends the turn with it.
func (t *TurnStream) check(err error) {
	if err != nil && t.err == nil {
		t.err = err
		t.stop()
	}
}
