package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// What one tenant's calls bring has a pace of its own: another tenant's answer does not wait for it, and a server that
// is connected to anew finds the paces as they were.
func TestPacesAreTheTenants(t *testing.T) {
	all := newPaces()
	greedy := all.forTenant("greedy")
	greedy.reserve(10 * paceBurst)
	if wait := all.forTenant("modest").reserve(1); wait != 0 {
		t.Errorf("another tenant waits %v", wait)
	}
	for greedy.requests.try() {
	}
	if modest := all.forTenant("modest"); !modest.requests.try() {
		t.Error("the server may ask nothing of another tenant's calls")
	}
	if all.forTenant("greedy") != greedy || greedy.reserve(1) == 0 {
		t.Error("the tenant's pace was refilled")
	}
	for i := range 10 * maxPaces {
		all.forTenant(strings.Repeat("x", i))
	}
	if n := len(all.by); n > maxPaces+1 {
		t.Errorf("paces of %d tenants are kept", n)
	}
	if all.forTenant("greedy") != greedy {
		t.Error("a pace that is used was forgotten")
	}
	ctx, attempt := newAttempt(t.Context(), "greedy")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a.test/", http.NoBody)
	if err != nil || attempt.tenant != "greedy" {
		t.Fatal(err)
	}
	w := &web{conn: &connection{paces: all}}
	if w.paceOf(req) != greedy || w.paceOf(req.WithContext(context.Background())) == greedy {
		t.Error("an answer has another tenant's pace")
	}
}

// A stream that no call waits for any more takes none of the pace of those that are opened again.
func TestStreamsThatAreGivenUp(t *testing.T) {
	w := &web{conn: &connection{paces: newPaces(), ctx: t.Context()}, server: new(Server), base: new(http.Transport)}
	gets := &w.conn.paces.forTenant("").gets
	gets.reserve(getBurst)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 100 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.RoundTrip(req); err == nil {
			t.Fatal("it was sent")
		}
	}
	if wait := gets.reserve(1); wait > 2*time.Second {
		t.Errorf("the next stream waits %v", wait)
	}
}

// A message of many values takes of the pace what it costs to read, and what is not read does not get so far.
func TestManyValuesTakeOfThePace(t *testing.T) {
	many := strings.Repeat(`{"":{}},`, 40_000) + `1`
	for message, want := range map[string]struct {
		pass bool
		used float64
	}{
		`{"jsonrpc":"2.0","id":1,"result":{"a":[` + many + `]}}`:                                        {true, 1000},
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`:                        {false, 0},
		`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`:                               {false, 0},
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"a":[` + many + `]}}`:             {false, 0},
		`{"jsonrpc":"2.0","method":"notifications/x","params":"` + strings.Repeat("x", 65<<10) + `"}`:   {false, 0},
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`:                                 {true, 0},
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`: {true, 0},
	} {
		c := &connection{paces: newPaces(), decoding: newDecoding(), first: new(attempt)}
		from := &paced{ReadCloser: io.NopCloser(strings.NewReader("")), ctx: t.Context(), pace: c.paces.forTenant("t")}
		pass, err := c.receive([]byte(message), from)
		if err != nil || pass != want.pass || from.pace.used < want.used || want.used == 0 && from.pace.used > 1 {
			t.Errorf("%.80s: %v, %v, %v tokens", message, pass, err, from.pace.used)
		}
	}
}

// A server that has sent more than it may is not connected to sooner because calls wait for it.
func TestHostileServersAreLeftAlone(t *testing.T) {
	for _, err := range []error{errFlood, errTooMany, errTooLong, errNotReading, errNoMessage} {
		if !isHostile(err) {
			t.Errorf("%v", err)
		}
	}
	if isHostile(errCut) || isHostile(registry.CodeBusy) {
		t.Error("a connection that was lost")
	}
	s := &server{servers: &Servers{cfg: Config{Backoff: time.Millisecond}}, wanted: make(chan struct{}, 1)}
	s.wanted <- struct{}{}
	if !s.pause(t.Context(), time.Hour, true) {
		t.Error("a call that waits does not shorten the pause")
	}
	s.wanted <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if s.pause(ctx, time.Hour, false) {
		t.Error("a call that waits shortens the pause of a hostile server")
	}
}

// A notification in place of an answer is not decoded past the pace: it is no answer.
func TestANotificationIsNoAnswer(t *testing.T) {
	many := `{"jsonrpc":"2.0","method":"notifications/message","params":[` + strings.Repeat("{},", 40_000) + `1]}`
	resp := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(many))}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp.Request = req
	w := &web{conn: &connection{paces: newPaces(), decoding: newDecoding()}}
	if _, err := w.readWhole(t.Context(), resp, "application/json"); !errors.Is(err, errNoMessage) {
		t.Errorf("read: %v", err)
	}
}
