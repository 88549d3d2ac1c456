// Package ssewriter writes server-sent events, for the API and for the endpoints of /v1. Stream writes the events of
// one answer. ServeTurn writes the events of a running turn, and decides when the answer begins.
//
// It imports nothing of this module.
package ssewriter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// Heartbeat is the longest silence of a stream. Proxies and networks may close a connection that is silent for
	// longer.
	Heartbeat = 15 * time.Second

	// writeTimeout is how long a client may take to receive flushed events. A slower client is disconnected. It can
	// reconnect and continue where it was.
	writeTimeout = 10 * time.Second
)

// comment is a heartbeat. Readers of events skip it.
const comment = ":\n\n"

// Format is the media type of a stream, and its heartbeat, which readers must skip.
type Format struct{ MediaType, Heartbeat string }

// Events is the format of server-sent events.
func Events() Format { return Format{"text/event-stream", comment} }

// Stream writes server-sent events. It belongs to one goroutine.
type Stream struct {
	w       http.ResponseWriter
	beat    string
	control *http.ResponseController
	buffer  bytes.Buffer
	last    time.Time // of the last write
}

// New returns a stream on a writer whose header was written.
func New(w http.ResponseWriter) *Stream {
	return &Stream{w: w, beat: comment, control: http.NewResponseController(Innermost(w)), last: time.Now()}
}

// Open writes the header of an answer of server-sent events. It fails if the client is gone.
func Open(c *gin.Context) (*Stream, error) { return open(c, Events()) }

func open(c *gin.Context, f Format) (*Stream, error) {
	header := c.Writer.Header()
	header.Set("Content-Type", f.MediaType)
	header.Set("Cache-Control", "no-cache, no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer events
	c.Status(http.StatusOK)
	c.Writer.WriteHeaderNow()
	s := New(c.Writer)
	s.beat = f.Heartbeat
	if err := s.control.Flush(); err != nil {
		return nil, err
	}
	s.writeBy(time.Time{}) // each later write sets its own deadline
	return s, nil
}

// Innermost returns the writer of net/http. The writers around it swallow errors of flushing, and http.MaxBytesReader
// closes the connection only for this one.
func Innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// Put adds an event to the next flush. The name may be empty. The id is where a reconnecting client continues. An event
// without an id does not change that position. Put fails only if a json.RawMessage in data is not JSON.
func (s *Stream) Put(id, event string, data any) error { return Append(&s.buffer, id, event, data) }

// PutEncoded adds events that Append encoded to the next flush.
func (s *Stream) PutEncoded(events []byte) { s.buffer.Write(events) }

func (s *Stream) Buffered() int { return s.buffer.Len() }

// Append appends one encoded event.
func Append(b *bytes.Buffer, id, event string, data any) error {
	start := b.Len()
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	if event != "" {
		b.WriteString("event: " + event + "\n")
	}
	b.WriteString("data: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil { // one line, and its line feed
		b.Truncate(start)
		return err
	}
	b.WriteByte('\n')
	return nil
}

// OneLine replaces line breaks in an encoded JSON text by spaces: they would end an event, or a line of a list. JSON
// has them only between tokens, where a device may have sent them. It changes text.
func OneLine(text []byte) {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
}

// Flush writes the buffered events. If there are none, it writes a comment once the stream was silent for Heartbeat. An
// error means that the client is gone or too slow.
func (s *Stream) Flush() error {
	if s.buffer.Len() == 0 {
		if s.UntilHeartbeat() > 0 {
			return nil
		}
		s.buffer.WriteString(s.beat)
	}
	defer s.emptyBuffer()
	s.writeBy(time.Now().Add(writeTimeout))
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	s.writeBy(time.Time{}) // the next event may come in an hour
	s.last = time.Now()
	return nil
}

// keptBuffer is how many bytes a buffer keeps between two flushes: a stream may live for an hour after a long event.
const keptBuffer = 64 << 10

func (s *Stream) emptyBuffer() {
	if s.buffer.Reset(); s.buffer.Cap() > keptBuffer {
		s.buffer = bytes.Buffer{}
	}
}

// writeParts writes text as it is, after the buffered events, in parts of size bytes. next is called before each part:
// it sets the deadline of the part, or returns false if the client was disconnected.
func (s *Stream) writeParts(text []byte, size int, next func(*http.ResponseController) bool) error {
	if s.buffer.Len() > 0 {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(text, size) {
		if !next(s.control) {
			return errStalled
		}
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	s.writeBy(time.Time{})
	s.last = time.Now()
	return nil
}

var errStalled = errors.New("the client was disconnected, because it did not read")

// UntilHeartbeat returns how much longer the stream may be silent. It is negative if a heartbeat is overdue.
func (s *Stream) UntilHeartbeat() time.Duration { return Heartbeat - time.Since(s.last) }

// Close sets a deadline for the end of the answer, which net/http writes.
func (s *Stream) Close() { s.writeBy(time.Now().Add(writeTimeout)) }

// Controller returns the controller that sets the deadlines of the answer.
func (s *Stream) Controller() *http.ResponseController { return s.control }

func (s *Stream) writeBy(deadline time.Time) {
	_ = s.control.SetWriteDeadline(deadline) // fails for a test's recorder, which has no slow reader
}

// TurnStream writes the events of a running turn. The answer begins with the first event, or with a comment after a
// short time. Before that, a failure still gets its own status, which clients and load balancers act upon. After that,
// a waiting client must see that it is served. TurnStream is safe for concurrent use.
type TurnStream struct {
	open func() (*Stream, error)
	stop context.CancelFunc // ends the turn

	mu  sync.Mutex
	out *Stream // nil until the answer has begun
	err error   // of writing: the client is gone or too slow
}

// Turn writes the events of a turn. failure is the answer if nothing was written yet. Otherwise end writes the end.
type Turn func(context.Context, *TurnStream) (end func(), failure error)

// ServeTurn calls run to write the events of a turn, and sends heartbeats between them. The answer begins after grace
// at the latest. The context of run ends when the client disconnects or does not read. ServeTurn returns the failure
// that is still to be answered, or the error of a client that is gone.
func ServeTurn(ctx context.Context, c *gin.Context, grace time.Duration, run Turn) (failure, gone error) {
	return Serve(ctx, c, Events(), grace, run)
}

// Serve is ServeTurn for another format, in which run writes with SendRaw.
func Serve(ctx context.Context, c *gin.Context, f Format, grace time.Duration, run Turn) (failure, gone error) {
	ctx, stop := context.WithCancel(ctx)
	t := &TurnStream{open: func() (*Stream, error) { return open(c, f) }, stop: stop}
	end, failure := t.runWithHeartbeat(ctx, grace, run)
	if failure != nil && t.out == nil {
		return failure, nil
	}
	end()
	if t.out != nil {
		t.out.Close()
	}
	return nil, t.err
}

// runWithHeartbeat runs a turn. After it returns, no other goroutine uses the answer.
func (t *TurnStream) runWithHeartbeat(
	ctx context.Context, grace time.Duration, run Turn,
) (end func(), failure error) {
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

// Send writes and flushes one event. The name may be empty. After a failed write it does nothing.
func (t *TurnStream) Send(name string, data any) {
	t.write(func(out *Stream) error { return out.Put("", name, data) })
}

// SendText writes an event with raw text as its data, on one line.
func (t *TurnStream) SendText(text string) {
	t.SendRaw([]byte("data: " + text + "\n\n"))
}

// KeepAlive writes and flushes a comment, for activity without an event.
func (t *TurnStream) KeepAlive() { t.SendRaw([]byte(comment)) }

// SendRaw writes and flushes bytes as they are.
func (t *TurnStream) SendRaw(text []byte) {
	t.write(func(out *Stream) error {
		out.buffer.Write(text)
		return nil
	})
}

// SendParts writes and flushes a long text as it is, in parts of size bytes, without a copy. next is called before each
// part: it sets the deadline of the part, or returns false if the client was disconnected.
func (t *TurnStream) SendParts(text []byte, size int, next func(*http.ResponseController) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begin() {
		t.check(t.out.writeParts(text, size, next))
	}
}

// write begins the answer if necessary, calls put to add to it, and flushes it.
func (t *TurnStream) write(put func(*Stream) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begin() {
		t.check(put(t.out))
		t.check(t.out.Flush())
	}
}

// beat begins the answer, or writes a heartbeat if one is due. It returns when the next one is due.
func (t *TurnStream) beat() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.out != nil
	if !t.begin() {
		return Heartbeat
	}
	if !begun {
		t.out.buffer.WriteString(t.out.beat)
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

// check stores the first error, and ends the turn.
func (t *TurnStream) check(err error) {
	if err != nil && t.err == nil {
		t.err = err
		t.stop()
	}
}
