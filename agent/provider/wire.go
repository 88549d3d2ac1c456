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

	"github.com/farhand/farhand/internal/ssereader"
	"github.com/farhand/farhand/internal/strictjson"
)

// maxErrorBody bounds what is read of a refusal, in bytes.
const maxErrorBody = 64 << 10

// The pace of a stream, which is several times that of the fastest model: what comes faster stays in the network. Else
// a server that says nothing without an end would keep a processor busy for as long as an answer may take.
const (
	lineTime  = time.Second / 20_000 // of a line
	megaTime  = time.Second / 16     // of a MiB
	paceBurst = 5 * time.Second      // how far ahead of that a stream may be
)

// wire carries one attempt. It gives up on a server that falls silent, and turns every refusal into a failure.
type wire struct {
	c     *caller
	timer *time.Timer
	due   time.Time // when what has come would have come at the pace of a stream
}

// newWire starts to wait for the server at once. silent is called, in a goroutine of its own, when it says nothing.
func newWire(c *caller, silent func()) *wire {
	return &wire{c: c, timer: time.AfterFunc(c.cfg.Idle, silent)}
}

func (w *wire) stop() { w.timer.Stop() }

// ask makes a request and has the events of its answer read.
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
	// Escaping makes up to six bytes of one, mostly it makes one of one.
	return read(ssereader.New(in, 2*w.c.cfg.MaxBytes+maxErrorBody))
}

// refusal reads as much of a response as is worth showing.
func (w *wire) refusal(res *http.Response, body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
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
		f.err.Message = fmt.Sprintf("The provider of %q does not stream. It says: %s", w.c.cfg.Name,
			w.c.presentable(text))
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

// watched is a stream as it arrives. The time its reader takes between two reads does not count as silence.
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

// pace waits, within ctx, if what has come is too far ahead of its time.
func (w *wire) pace(ctx context.Context, came []byte) error {
	if began := time.Now().Add(-paceBurst); w.due.Before(began) {
		w.due = began
	}
	w.due = w.due.Add(time.Duration(bytes.Count(came, []byte("\n")))*lineTime + time.Duration(len(came))*megaTime>>20)
	early := time.Until(w.due)
	if early <= 0 {
		return nil
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxValues is how many values of JSON one event may have. An empty choice takes three bytes of it, and some hundred in
// memory.
const maxValues = 1 << 16

// Servers that speak like a vendor do not write every value in the type the vendor does. What can be understood is.

// lenientString is a string. Another value counts as the text it is written as: arguments that are an object, an id
// that is a number. null is empty.
type lenientString string

// UnmarshalJSON implements json.Unmarshaler.
func (s *lenientString) UnmarshalJSON(data []byte) error {
	*s = lenientString(plain(data))
	return nil
}

// lenientInt is a whole number, which may be written as a fraction or as a string. Anything else is 0.
type lenientInt int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *lenientInt) UnmarshalJSON(data []byte) error {
	const exact = 1 << 53 // of a float64
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if *n = 0; err == nil && f > -exact && f < exact {
		*n = lenientInt(f)
	}
	return nil
}

// decode reads the data of an event. A member that should be an object or a list and is none counts as absent.
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
