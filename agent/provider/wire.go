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
	"github.com/farhand/farhand/internal/trace"
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

// ask makes one request and reads the answer. silent is called, in its own goroutine, when the server is silent for too
// long. Every rejection becomes a failure.
func (c *caller) ask(
	ctx context.Context, body []byte, a *answer, read func(ssereader.Event) error, silent func(),
) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	if parent := trace.Parent(ctx); parent != "" {
		req.Header.Set("traceparent", parent)
	}
	timer := time.AfterFunc(c.cfg.Idle, silent)
	defer timer.Stop()
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	timer.Stop()
	in := bufio.NewReader(&watched{Reader: res.Body, ctx: ctx, timer: timer, idle: c.cfg.Idle})
	if res.StatusCode != http.StatusOK || isDocument(in) {
		return c.refusal(res, in)
	}
	// Escaping makes up to six bytes of one, but mostly leaves bytes unchanged.
	events := ssereader.New(in, 2*c.cfg.MaxBytes+maxErrorBody)
	events.Grow = a.hold
	return a.ended(readEvents(events, read))
}

// refusal returns the failure for a response without a stream. It reads at most maxErrorBody bytes.
func (c *caller) refusal(res *http.Response, body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil && len(data) == 0 {
		data = []byte(http.StatusText(res.StatusCode)) // the status alone is enough
	}
	_, text := reported(data)
	f := c.refused(res.StatusCode, text, adviceOf(res.Header, time.Now()))
	if f.err.Kind == KindRequest {
		var body struct{ Error struct{ Param string } }
		_ = json.Unmarshal(data, &body) // invalid JSON leaves it empty
		f.err.Param = c.presentable(body.Error.Param)
	}
	switch {
	case res.StatusCode == http.StatusOK:
		f.err.Message = fmt.Sprintf("The provider of %q does not stream. It says: %s", c.cfg.Name, c.presentable(text))
	case res.Header.Get("X-Should-Retry") == "false": // both vendors send it if a retry is useless
		f.passing = false
	}
	return f
}

// isDocument reports whether a response is JSON or HTML, not a stream. Some servers label their streams as JSON.
func isDocument(r *bufio.Reader) bool {
	first, err := r.Peek(1)
	return err == nil && (first[0] == '{' || first[0] == '<') // the reader handles read errors
}

// watched is a stream that resets the idle timer for each read. The time between two reads does not count as silence.
// It waits if the received data is too far ahead of the maximum pace.
type watched struct {
	io.Reader
	ctx   context.Context
	timer *time.Timer
	idle  time.Duration
	due   time.Time // when the received data would have arrived at the maximum pace
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	n, err := w.Reader.Read(p)
	w.timer.Stop()
	if began := time.Now().Add(-paceBurst); w.due.Before(began) {
		w.due = began
	}
	w.due = w.due.Add(time.Duration(bytes.Count(p[:n], []byte("\n")))*lineTime + time.Duration(n)*megaTime>>20)
	if early := time.Until(w.due); early > 0 {
		if late := pause.For(w.ctx, early); late != nil {
			return 0, late
		}
	}
	return n, err
}

// maxValues is the maximum number of JSON values in one event, which take more memory than text.
const maxValues = 1 << 16

// Compatible servers do not always use the vendor's types for values. The types below accept what can be understood.

// lenientString is a string. Other values become their JSON text, such as an object as arguments. null is empty.
type lenientString string

func (s *lenientString) UnmarshalJSON(data []byte) error {
	*s = lenientString(plain(data))
	return nil
}

// lenientInt is an integer that is not negative, and of which many can be added. It may be written with a fraction or
// as a string. Others are read as 0.
type lenientInt int64

func (n *lenientInt) UnmarshalJSON(data []byte) error {
	const most = 1 << 40 // the usage of a day adds up millions of them
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if *n = 0; err == nil && f > 0 && f < most {
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
