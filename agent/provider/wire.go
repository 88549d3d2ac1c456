package provider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/internal/strictjson"
)

// maxErrorBody is the maximum size of an error body that is read, in bytes.
const maxErrorBody = 64 << 10

// The maximum pace of a stream. It is several times that of the fastest model; faster data waits in the network.
// Otherwise a server that sends endless data could keep a CPU busy for the whole timeout of an answer.
const (
	lineTime  = time.Second / 20_000 // for a line
	megaTime  = time.Second / 16     // for a MiB
	paceBurst = 5 * time.Second      // how far ahead of the pace a stream may be
)

// wire performs one attempt. It cancels the attempt if the server is silent, and converts every rejection to a failure.
type wire struct {
	c     *caller
	timer *time.Timer
	due   time.Time // when the received data would have arrived at the maximum pace
}

// newWire starts the idle timer immediately. silent is called, in its own goroutine, when the server is silent for too
// long.
func newWire(c *caller, silent func()) *wire {
	return &wire{c: c, timer: time.AfterFunc(c.cfg.Idle, silent)}
}

func (w *wire) stop() { w.timer.Stop() }

// ask makes a request and passes the events of its answer to read.
func (w *wire) ask(ctx context.Context, body []byte, read func(*ssereader.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = w.c.header.Clone()
	res, err := w.c.cfg.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	w.stop()
	in := bufio.NewReader(watched{res.Body, w, ctx})
	if res.StatusCode != http.StatusOK || isDocument(in) {
		return w.refusal(res, in)
	}
	// Escaping makes up to six bytes of one, but mostly leaves bytes unchanged.
	return read(ssereader.New(in, 2*w.c.cfg.MaxBytes+maxErrorBody))
}

// refusal returns the failure for a response without a stream. It reads at most maxErrorBody bytes.
func (w *wire) refusal(res *http.Response, body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil && len(data) == 0 {
		data = []byte(http.StatusText(res.StatusCode)) // the status alone is enough
	}
	_, text := reported(data)
	f := w.c.refused(res.StatusCode, text, adviceOf(res.Header, time.Now()))
	if f.err.Kind == KindRequest {
		f.err.Param = w.c.presentable(paramOf(data))
	}
	switch {
	case res.StatusCode == http.StatusOK:
		f.err.Message = fmt.Sprintf("The provider of %q does not stream. It says: %s", w.c.cfg.Name,
			w.c.presentable(text))
	case res.Header.Get("X-Should-Retry") == "false": // both vendors send it if a retry is useless
		f.passing = false
	}
	return f
}

// isDocument reports whether a response is JSON or HTML instead of a stream. The content type is not reliable: some
// servers label their streams as JSON.
func isDocument(r *bufio.Reader) bool {
	first, err := r.Peek(1)
	return err == nil && (first[0] == '{' || first[0] == '<') // the reader handles read errors
}

// watched is a stream that resets the idle timer for each read. The time between two reads does not count as silence.
type watched struct {
	io.Reader
	wire *wire
	ctx  context.Context
}

func (w watched) Read(p []byte) (int, error) {
	w.wire.timer.Reset(w.wire.c.cfg.Idle)
	n, err := w.Reader.Read(p)
	w.wire.stop()
	if late := w.wire.pace(w.ctx, p[:n]); late != nil {
		return 0, late
	}
	return n, err
}

// pace waits, within ctx, if the received data is too far ahead of the maximum pace.
func (w *wire) pace(ctx context.Context, came []byte) error {
	if began := time.Now().Add(-paceBurst); w.due.Before(began) {
		w.due = began
	}
	w.due = w.due.Add(time.Duration(bytes.Count(came, []byte("\n")))*lineTime + time.Duration(len(came))*megaTime>>20)
	early := time.Until(w.due)
	if early <= 0 {
		return nil
	}
	return pause.For(ctx, early)
}

// maxValues is the maximum number of JSON values in one event. An empty choice takes three bytes as text, and a few
// hundred in memory.
const maxValues = 1 << 16

// Compatible servers do not always use the vendor's types for values. The types below accept what can be understood.

// lenientString is a string. Other values are converted to their JSON text, such as an object as arguments or a number
// as an id. null is empty.
type lenientString string

// UnmarshalJSON implements json.Unmarshaler.
func (s *lenientString) UnmarshalJSON(data []byte) error {
	*s = lenientString(plain(data))
	return nil
}

// lenientInt is an integer, which may be written with a fraction or as a string. Any other value is 0.
type lenientInt int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *lenientInt) UnmarshalJSON(data []byte) error {
	const exact = 1 << 53 // in a float64
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if *n = 0; err == nil && f > -exact && f < exact {
		*n = lenientInt(f)
	}
	return nil
}

// decode decodes the data of an event. A member with the wrong type counts as absent.
func decode(data []byte, into any) error {
	if strictjson.Values(data) > maxValues {
		return errNonsense
	}
	err := json.Unmarshal(data, into)
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return nil
	}
	if err != nil {
		return errNonsense
	}
	return nil
}
