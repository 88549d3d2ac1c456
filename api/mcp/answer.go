package mcp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/api/internal/ssewriter"
)

// silence is how long a call may take before its answer begins as events, with signs of life between them: proxies cut
// off what is silent for longer. Quicker calls are answered with plain JSON, unless they report progress.
const silence = 10 * time.Second

// answer is the answer to one request while it is made: plain JSON, or events if something is to be said before the
// result. It is safe for concurrent use.
type answer struct {
	*request
	ctx  context.Context
	stop context.CancelFunc // ends the request: its client is gone

	mu     sync.Mutex
	stream *ssewriter.Stream // nil: nothing is written yet
	timer  *time.Timer       // of signs of life; nil: the client takes no events
	over   bool              // the last message is written, or the client is gone
}

// begin begins an answer. The context ends when a client that is told something turns out to be gone.
func (r *request) begin(ctx context.Context) (context.Context, *answer) {
	a := &answer{request: r}
	a.ctx, a.stop = context.WithCancel(ctx)
	if a.takesEvents() {
		a.mu.Lock() // the timer may go off before it is noted
		defer a.mu.Unlock()
		a.timer = time.AfterFunc(silence, a.beat)
	}
	return a.ctx, a
}

// takesEvents reports whether the client says that it takes server-sent events.
func (r *request) takesEvents() bool {
	for _, accepted := range r.Header["Accept"] {
		if strings.Contains(accepted, "text/event-stream") {
			return true
		}
	}
	return false
}

// beat shows that the answer is under way.
func (a *answer) beat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || !a.openLocked() {
		return
	}
	if err := a.stream.Flush(); err != nil {
		a.endLocked()
		return
	}
	a.timer.Reset(max(a.stream.UntilHeartbeat(), time.Millisecond))
}

// notify writes a message before the result. It does nothing once the client is gone.
func (a *answer) notify(message []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.timer == nil || !a.openLocked() {
		return
	}
	putMessage(a.stream, message)
	if err := a.stream.Flush(); err != nil {
		a.endLocked()
	}
}

// noteCall says which call the answer is about, unless the answer has begun.
func (a *answer) noteCall(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream == nil && !a.over {
		a.Out.NoteCall(id)
	}
}

// openLocked makes sure that the answer has begun as events.
func (a *answer) openLocked() bool {
	if a.stream != nil {
		return true
	}
	var err error
	if a.stream, err = a.Out.Open(); err != nil {
		a.endLocked()
		return false
	}
	a.timer.Reset(max(a.stream.UntilHeartbeat(), time.Millisecond))
	return true
}

func (a *answer) endLocked() {
	a.over = true
	a.stop()
}

// finish writes the last message, or none if the client has cancelled the request. It must be called once; nothing is
// written after it.
func (a *answer) finish(s *Server, res result, err error) error {
	defer a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // under the lock, because what is being written meanwhile sets it again
	}
	switch {
	case a.over:
		return nil
	case err == errCancelled && a.stream == nil:
		a.over = true
		return a.Out.Write(http.StatusAccepted, nil, nil) // as a message that has no answer
	case err == errCancelled:
		a.over = true
		a.stream.Close()
		return nil
	case a.stream == nil && err != nil:
		a.over = true
		return a.fail(err)
	case a.stream == nil:
		a.over = true
		return a.Out.Write(http.StatusOK, s.appendResult(nil, a.request, res), nil)
	}
	a.over = true
	defer a.stream.Close()
	var last []byte
	if err != nil {
		e := rpcErrorOf(err)
		a.Out.NoteFailure(e.cause)
		last = appendError(nil, a.id, e)
	} else {
		last = s.appendResult(nil, a.request, res)
	}
	release, err := a.Out.Reserve(a.ctx, a.stream, len(last))
	if err != nil {
		return nil // the client sees its stream end without an answer: this pod is out of memory
	}
	defer release()
	putMessage(a.stream, last)
	_ = a.stream.Flush() // the client is gone if this fails
	return nil
}

// putMessage adds a message to a stream as an event, on one line. What a device sent may have line feeds, which would
// end the event; outside of strings they are white space. It changes message.
func putMessage(s *ssewriter.Stream, message []byte) {
	s.PutEncoded([]byte("event: message\ndata: "))
	if n := len(message); n > 0 && message[n-1] == '\n' {
		message = message[:n-1]
	}
	for i, c := range message {
		if c == '\n' || c == '\r' {
			message[i] = ' '
		}
	}
	s.PutEncoded(message)
	s.PutEncoded([]byte("\n\n"))
}
