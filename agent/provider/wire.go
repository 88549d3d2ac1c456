package provider

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxErrorBody bounds what is read of a refusal, in bytes.
const maxErrorBody = 64 << 10

// wire stands between an SDK and the network for one attempt. It gives up on a server that falls silent, turns every
// refusal into a failure before the SDK reads it whole, and bounds the single event of a stream, which the SDKs do not.
type wire struct {
	c     *caller
	timer *time.Timer
}

// newWire starts to wait for the server at once. silent is called, in a goroutine of its own, when it says nothing.
func newWire(c *caller, silent func()) *wire {
	return &wire{c: c, timer: time.AfterFunc(c.idle, silent)}
}

func (w *wire) stop() { w.timer.Stop() }

// do is a middleware of both SDKs.
func (w *wire) do(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	if err != nil {
		return nil, err
	}
	w.stop()
	// Escaping makes up to six bytes of one, mostly it makes one of one.
	raw := &body{ReadCloser: res.Body, wire: w, limit: 2*w.c.limit + maxErrorBody}
	buffered := bufio.NewReader(raw)
	res.Body = struct {
		io.Reader
		io.Closer
	}{buffered, raw}
	if res.StatusCode != http.StatusOK || isDocument(buffered) {
		defer func() { _ = res.Body.Close() }()
		return nil, w.refusal(res)
	}
	return res, nil
}

// refusal reads as much of a response as is worth showing.
func (w *wire) refusal(res *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil && len(data) == 0 {
		data = []byte(http.StatusText(res.StatusCode)) // the status alone says enough
	}
	_, text := reported(data)
	f := w.c.refused(res.StatusCode, text, adviceOf(res.Header, time.Now()))
	if f.err.Kind == KindRequest {
		f.err.Param = w.c.presentable(paramOf(data))
	}
	switch {
	case res.StatusCode == http.StatusOK:
		f.err.Message = fmt.Sprintf("The provider of %q does not stream. It says: %s", w.c.model, w.c.presentable(text))
	case res.Header.Get("X-Should-Retry") == "false": // both vendors say so where trying again is in vain
		f.passing = false
	}
	return f
}

// isDocument reports whether what comes is JSON or HTML instead of a stream. The type it is said to have does not tell:
// some servers call their streams JSON.
func isDocument(r *bufio.Reader) bool {
	first, err := r.Peek(1)
	return err == nil && (first[0] == '{' || first[0] == '<') // what cannot be read is left to who reads it
}

// body is the stream as it arrives. The time its reader takes between two reads does not count as silence.
type body struct {
	io.ReadCloser
	wire  *wire
	limit int // of an event
	event int // bytes since the last empty line
	line  int // bytes since the last end of line
}

func (b *body) Read(p []byte) (int, error) {
	b.wire.timer.Reset(b.wire.c.idle)
	n, err := b.ReadCloser.Read(p)
	b.wire.stop()
	if b.measure(p[:n]) > b.limit {
		return 0, tooLong{fmt.Sprintf("%d bytes in one event", b.limit)}
	}
	return n, err
}

// measure returns the length of the longest event seen in p, with what came of it before.
func (b *body) measure(p []byte) int {
	longest := 0
	for _, c := range p {
		b.event++
		longest = max(longest, b.event)
		switch {
		case c == '\n' && b.line == 0:
			b.event = 0
		case c == '\n':
			b.line = 0
		case c != '\r':
			b.line++
		}
	}
	return longest
}
