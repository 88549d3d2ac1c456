package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// shape is a way to call.
type shape string

const (
	short shape = "short" // answered within 100 ms
	long  shape = "long"  // within 1.5 s
	late  shape = "late"  // after the caller's time is up
	keyed shape = "keyed" // with an idempotency key, again until the outcome is known
	async shape = "async" // the same, and the caller reads the record

	queued shape = "queued" // the same, and the call waits if its device is away
)

// isDurable reports whether the gateway promises the outcome even if the caller's pod is gone.
func (s shape) isDurable() bool { return s == keyed || s == async || s == queued }

// callTimeout is the timeout of calls in ms, longer than the device takes to come back from a fault.
const callTimeout = 20_000

// caller makes calls, one after the other: some by session, some by name.
type caller struct {
	t      *testing.T
	book   *ledger
	fleet  *fleet
	device *device // of its calls by session
	all    []*device
	random *rand.Rand
	made   int
}

// run calls until over is closed. A call that has begun is brought to its end.
func (c *caller) run(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
			c.call()
			pause(time.Duration(c.random.IntN(60)) * time.Millisecond)
		}
	}
}

// call makes a call of a random shape.
func (c *caller) call() {
	r := &request{shape: []shape{short, short, long, late, keyed, keyed, async, queued}[c.random.IntN(8)],
		sdk: c.device.sdk}
	c.made++
	r.text = fmt.Sprintf("%s %s %d %x", r.shape, c.device.session, c.made, c.random.Uint64())
	ms, timeout := c.random.IntN(100), callTimeout
	switch r.shape {
	case long, keyed, async, queued:
		ms = c.random.IntN(1500)
	case late:
		ms, timeout = 600+c.random.IntN(1500), 300
	}
	path := "/api/sessions/" + c.device.session + "/tools/ledger/call"
	body := map[string]any{"args": map[string]any{"text": r.text, "ms": ms}, "timeout_ms": timeout}
	if c.random.IntN(2) == 0 { // by name
		path = "/api/tools/ledger/call"
		body["target"] = map[string]any{"device_id": c.device.session}
	}
	if r.shape.isDurable() {
		body["idempotency_key"] = strings.ReplaceAll(r.text, " ", "/")
	}
	switch r.shape {
	case async:
		body["mode"] = "async"
	case queued:
		body["queue"] = map[string]any{"ttl_ms": callTimeout}
	}
	c.book.ask(r)
	if r.shape.isDurable() {
		c.insist(r, path, body)
		return
	}
	c.post(r, path, body)
}

// insist repeats the request, with the same key, on either pod, until it has an outcome. It then reads the record of an
// asynchronous call until it is final.
func (c *caller) insist(r *request, path string, body any) {
	for end := time.Now().Add(testkit.Limit); ; {
		h := c.post(r, path, body)
		switch {
		case h.status == http.StatusAccepted:
			c.follow(r, h.CallID)
			return
		case h.status == http.StatusOK, h.status != 0 && h.Dispatched != "no" && !h.isOpen():
			return
		case time.Now().After(end):
			c.t.Errorf("no outcome: %s", c.book.history(r.text))
			return
		}
		pause(50 * time.Millisecond)
	}
}

// follow waits for the final record of a call.
func (c *caller) follow(r *request, callID string) {
	for end := time.Now().Add(testkit.Limit); time.Now().Before(end); pause(50 * time.Millisecond) {
		if rec, err := c.record(callID, "?wait_ms=2000"); err == nil && rec.isFinal() {
			return // settle reads it again, with what came late
		}
	}
	c.t.Errorf("the record does not end: %s", c.book.history(r.text))
}

// heard is what a caller heard; status 0: nothing, with the reason in err.
type heard struct {
	status int
	err    error
	unsent bool // the pod did not take the connection
	replay bool // of the outcome of an earlier request with the same key
	at     time.Time

	CallID     string `json:"call_id"`
	State      string
	Output     string
	Code       string
	Detail     string
	Dispatched string
	Retryable  bool
}

// isOpen reports whether the call goes on, or may, so that a repeated request can hear its end.
func (h heard) isOpen() bool {
	return h.Dispatched == "unknown" && !h.replay || strings.HasPrefix(h.Detail, "The call is still ")
}

// entry returns a URL of the fleet.
func (c *caller) entry() string { return c.fleet.entries[c.random.IntN(len(c.fleet.entries))] }

// post makes the request on a pod, and writes down what it came to.
func (c *caller) post(r *request, path string, body any) (h heard) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	h.status, h.replay, h.err = c.send(http.MethodPost, c.entry()+path, string(text), &h)
	h.unsent = errors.Is(h.err, syscall.ECONNREFUSED)
	c.book.hear(r, h)
	return h
}

// record is the record of a call.
type record struct {
	State      string
	Output     string
	Dispatched string
	Late       bool
	OutputKept *bool `json:"output_kept"`
}

func (r record) isAnswered() bool { return r.State == "succeeded" || r.State == "failed" }

func (r record) isFinal() bool {
	return r.isAnswered() || r.State == "cancelled" || r.State == "timed_out" || r.State == "lost" ||
		r.State == "rejected" || r.State == "expired"
}

// errNoRecord says that there is no record of a call.
var errNoRecord = errors.New("there is no record")

func (c *caller) record(callID, query string) (rec record, err error) {
	status, _, err := c.send(http.MethodGet, c.entry()+"/api/calls/"+callID+query, "", &rec)
	switch {
	case err != nil:
		return rec, err
	case status == http.StatusNotFound:
		return rec, errNoRecord
	case status != http.StatusOK:
		return rec, fmt.Errorf("status %d", status)
	}
	return rec, nil
}

// answersLogged returns how many answers the log of an answered call has.
func (c *caller) answersLogged(callID string) int {
	r, err := http.NewRequest(http.MethodGet, c.entry()+"/api/calls/"+callID+"/events", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.fleet.token)
	resp, err := c.fleet.http.Do(r)
	if err != nil {
		c.t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return strings.Count(string(text), `"state":"succeeded"`) + strings.Count(string(text), `"state":"failed"`)
}

// send makes a request, and decodes the answer. replay says that the answer is an earlier request's.
func (c *caller) send(method, url, body string, into any) (status int, replay bool, err error) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("Authorization", "Bearer "+c.fleet.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.fleet.http.Do(r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return 0, false, err // the pod was killed while it answered
	}
	return resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", nil
}
