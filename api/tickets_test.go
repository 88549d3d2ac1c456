package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// revocable is an api.Live that knows who was revoked.
type revocable struct{ revoked sync.Map }

func (*revocable) Bind(ctx context.Context, _ *auth.Identity) (context.Context, func()) {
	return ctx, func() {}
}

func (r *revocable) Verify(_ context.Context, id *auth.Identity) error {
	if _, ok := r.revoked.Load(id.Credential); ok {
		return registry.Errorf(registry.CodeUnauthenticated, "revoked")
	}
	return nil
}

type givenTicket struct {
	Ticket, URL string
	ExpiresIn   int `json:"expires_in"`
}

// opens reports whether a stream can be opened without a token, and how it was refused.
func (f *fleet) opens(method, path string, pod int) (int, string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.pods[pod].server.URL+path, nil)
	f.must(err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	f.must(err)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Content-Type")
}

// TestTickets: a page opens a stream of events with a ticket that it got with its token: once, on any pod, for that
// path only, and with no more rights than the token's.
func TestTickets(t *testing.T) {
	for name, redis := range map[string]bool{"memory": false, "redis": true} {
		t.Run(name, func(t *testing.T) {
			live := &revocable{}
			s := setup{pods: 2, change: func(c *api.Config) { withDeciders(c); c.Live = live }}
			if redis {
				s.redis = redistest.Single(t)
			}
			f := newFleet(t, s)
			get := func(who, body string) givenTicket {
				t.Helper()
				return decode[givenTicket](f.as(who, request{
					method: http.MethodPost, path: "/api/events/tickets", body: body, pod: 1,
				}), 201)
			}
			given := get("agent", "")
			if given.ExpiresIn != 30 || given.URL != "/api/events?ticket="+given.Ticket {
				t.Errorf("%+v", given)
			}
			call := "/api/calls/11111111-2222-4333-8444-555555555555/events"
			for what, path := range map[string]string{
				"another stream": call + "?ticket=" + given.Ticket,
				"no stream":      "/api/tools?ticket=" + given.Ticket,
				"an approval":    "/api/approvals?ticket=" + given.Ticket,
				"a changed one":  "/api/events?ticket=" + given.Ticket[:len(given.Ticket)-2] + "AA",
				"half of one":    "/api/events?ticket=" + given.Ticket[:20],
				"an empty one":   "/api/events?ticket=",
			} {
				if status, _ := f.opens(http.MethodGet, path, 0); status != 401 {
					t.Errorf("%s: %d", what, status)
				}
			}
			if status, _ := f.opens(http.MethodPost, "/api/events/tickets?ticket="+given.Ticket, 0); status != 401 {
				t.Errorf("a ticket gets a ticket: %d", status)
			}
			if status, kind := f.opens(http.MethodGet, given.URL+"&type=call.finished", 0); status != 200 ||
				kind != "text/event-stream" {
				t.Fatalf("the stream: %d %s", status, kind)
			}
			if status, _ := f.opens(http.MethodGet, given.URL, 1); status != 401 {
				t.Errorf("a second time: %d", status)
			}
			ofCall := get("agent", `{"path":"`+call+`"}`)
			if status, _ := f.opens(http.MethodGet, ofCall.URL, 0); status != 404 { // let in; there is no such call
				t.Errorf("of a call: %d", status)
			}
			for _, body := range []string{`{"path":"/api/tools"}`, `{"path":"/api/calls//events"}`, `{"x":1}`, `[]`} {
				f.as("agent", request{method: http.MethodPost, path: "/api/events/tickets", body: body}).want(400)
			}
			f.as("phone", request{method: http.MethodPost, path: "/api/events/tickets", body: `{}`}).want(403)
			f.send(request{
				method: http.MethodPost, path: "/api/events/tickets", header: http.Header{"Authorization": nil},
			}).want(401)

			revoked := get("other", "")
			live.revoked.Store("key:other", true)
			if status, _ := f.opens(http.MethodGet, revoked.URL, 0); status != 401 {
				t.Errorf("of a revoked key: %d", status)
			}
			var bens []givenTicket
			for range registry.MaxNonces + 2 {
				bens = append(bens, get("ben", ""))
			}
			good := 0
			for _, given := range bens {
				if status, _ := f.opens(http.MethodGet, given.URL, 0); status == 200 {
					good++
				}
			}
			if good != registry.MaxNonces {
				t.Errorf("%d tickets of one identity are good", good)
			}
			if status, _ := f.opens(http.MethodGet, get("bot", "").URL, 0); status != 200 {
				t.Errorf("another's is not good any more: %d", status)
			}
		})
	}
}
