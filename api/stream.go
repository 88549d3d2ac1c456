package api

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	// heartbeat is how long a stream may be silent: proxies and networks take longer silence for death.
	heartbeat = 15 * time.Second

	// streamWriteTimeout is how long a client may take to receive what there is. One that is slower is cut off, and
	// goes on where it was when it comes back.
	streamWriteTimeout = 10 * time.Second
)

// comment is a sign of life, which readers of events skip.
const comment = ":\n\n"

// stream writes server-sent events. It belongs to one goroutine.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
	last    time.Time // when something was written
}

// put adds an event to what the next flush writes. An event may lack a name. The id is what a client sends to go on behind this event; an event
// without one leaves the client's place where it was.
func (s *stream) put(id, event string, data any) error {
	return appendEvent(&s.buffer, id, event, data)
}

// appendEvent appends an event as it is written.
func appendEvent(b *bytes.Buffer, id, event string, data any) error {
	text, err := encode(data)
	if err != nil {
		return err
	}
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	if event != "" {
		b.WriteString("event: " + event + "\n")
	}
	b.WriteString("data: ")
	b.Write(text) // JSON on one line, with its line feed
	b.WriteByte('\n')
	return nil
}

// flush writes what was put, or a sign of life if nothing was for long. An error means that the client is gone, or too
// slow.
func (s *stream) flush() error {
	if s.buffer.Len() == 0 && s.silence() > 0 {
		return nil
	}
	if s.buffer.Len() == 0 {
		s.buffer.WriteString(comment)
	}
	defer s.buffer.Reset()
	s.writeBy(time.Now().Add(streamWriteTimeout))
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	s.writeBy(time.Time{}) // no event may come for hours, and that is nobody's fault
	s.last = time.Now()
	return nil
}

// silence returns how long nothing needs to be written yet.
func (s *stream) silence() time.Duration { return heartbeat - time.Since(s.last) }

func (s *stream) writeBy(deadline time.Time) {
	_ = s.control.SetWriteDeadline(deadline) // a writer without deadlines (a test's recorder) has no slow reader either
}

// serveStream begins an answer of server-sent events and has fill write it. The context fill gets ends when the client
// goes or the pod stops.
func (h *handler) serveStream(c *gin.Context, fill func(context.Context, *stream) error) {
	s, err := openStream(c)
	if err != nil || c.Request.Method == http.MethodHead {
		return
	}
	defer func() { s.writeBy(time.Now().Add(streamWriteTimeout)) }() // the end of the answer has to be written too
	ctx, stop := h.drains.until(c.Request.Context())
	defer stop()
	if err := fill(ctx, s); err != nil && ctx.Err() == nil {
		h.Log.Debug("event stream cut off", "route", c.FullPath(), "error", err)
	}
}

// openStream writes the head of an answer of server-sent events. It fails when the client is gone.
func openStream(c *gin.Context) (*stream, error) {
	header := c.Writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would collect events before it passes them on
	c.Status(http.StatusOK)
	c.Writer.WriteHeaderNow()
	// gin's writer swallows the errors of flushing.
	s := &stream{w: c.Writer, control: http.NewResponseController(innermost(c.Writer)), last: time.Now()}
	if err := s.control.Flush(); err != nil {
		return nil, err
	}
	s.writeBy(time.Time{}) // from here on every write has its own
	return s, nil
}

// lastEventID returns the id of the event a client has seen last, empty for a new client. A browser that reconnects
// sends the header beside the query string it began with, so the header is newer.
func lastEventID(c *gin.Context, q params) (string, error) {
	id := c.GetHeader("Last-Event-ID")
	if id == "" {
		id = q.get("last_event_id")
	}
	if id == "" {
		return "", nil
	}
	return id, registry.CheckFeedID(id)
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
