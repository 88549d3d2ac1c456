package hooks_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/registry"
)

// notified makes a hook that is told of approvals.
func notified(t *testing.T, url string) (*hooks.Hook, *lines) {
	return open(t, url, func(c *hooks.Config) {
		c.Before, c.After, c.Approvals, c.Name, c.Tools = false, false, true, "pager", []string{"pay_*"}
	})
}

func waitingCall(tool string) registry.Approval {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return registry.Approval{
		ID: "aaaaaaaaaaaaaaaa", Tenant: "acme", CallID: "c1", Tool: tool,
		Args:      registry.MustJSON(`{"iban":"` + canary + `"}`),
		SessionID: "phone", Owner: "ann", Requester: registry.Requester{Credential: "key:1", Name: "ci"}, Rule: "pay",
		Reason: "Payments need four eyes.", By: registry.ApproveTwo, Approvers: []string{"ann", "ben"},
		CreatedAt: now, ExpiresAt: now.Add(time.Minute),
	}
}

// A service is told who is asked about what, with a link and without arguments, until it has taken the message. That it
// is signed is checked by the service of every test.
func TestApprovalsAreTold(t *testing.T) {
	var tries atomic.Int32
	taken := make(chan struct{}, 1)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		taken <- struct{}{}
	})
	h, log := notified(t, s.URL)
	a := waitingCall("pay_out")
	h.ApprovalRequested(waitingCall("camera_take"), hooks.Links{})
	h.ApprovalRequested(a, hooks.Links{API: "https://g.example/api/approvals/aaaaaaaaaaaaaaaa",
		Console: "https://g.example/console/approvals/aaaaaaaaaaaaaaaa"})
	select {
	case <-taken:
	case <-time.After(time.Minute):
		t.Fatal("nothing was sent again")
	}
	asked := s.questions()
	if len(asked) != 2 || asked[0].id != "aaaaaaaaaaaaaaaa.approval" || asked[1].id != asked[0].id {
		t.Fatalf("sent %+v", asked)
	}
	var got, want map[string]any
	if err := json.Unmarshal([]byte(asked[1].body), &got); err != nil {
		t.Fatal(err)
	}
	at, _ := json.Marshal(a.ExpiresAt)
	if err := json.Unmarshal([]byte(`{"type":"approval.requested","hook":"pager","data":{"id":"aaaaaaaaaaaaaaaa",
		"url":"https://g.example/api/approvals/aaaaaaaaaaaaaaaa",
		"console_url":"https://g.example/console/approvals/aaaaaaaaaaaaaaaa","call_id":"c1","tool":"pay_out","tenant":"acme",
		"user_id":"ann","session_id":"phone","requester":{"credential":"key:1","name":"ci","model":false},
		"reason":"Payments need four eyes.","rule":"pay","by":"two","approvers":["ann","ben"],
		"expires_at":`+string(at)+`}}`), &want); err != nil {
		t.Fatal(err)
	}
	if delete(got, "timestamp"); !reflect.DeepEqual(got, want) {
		t.Errorf("sent %v\nwant %v", got, want)
	}
	if strings.Contains(asked[1].body+log.String(), canary) {
		t.Error("the arguments were sent, or logged")
	}
	if !strings.Contains(log.String(), "phase=approval") {
		t.Errorf("the failure is not in the log: %s", log)
	}
}

// A service that hangs holds up neither the call nor the end of the gateway.
func TestApprovalsOfADeadService(t *testing.T) {
	reached, over := make(chan struct{}, 1), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{}; <-over })
	defer close(over)
	h, _ := notified(t, s.URL)
	h.ApprovalRequested(waitingCall("pay_out"), hooks.Links{})
	<-reached
	h.Close() // returns although the service has not answered
}

// A tenant whose messages are not taken leaves room for those of another.
func TestNoticesAreShared(t *testing.T) {
	told, over := make(chan struct{}), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("webhook-id") == "other.approval" {
			close(told)
			return
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	defer close(over)
	h, _ := notified(t, s.URL)
	for range 1100 {
		h.ApprovalRequested(waitingCall("pay_out"), hooks.Links{})
	}
	a := waitingCall("pay_out")
	a.ID, a.Tenant = "other", "other"
	h.ApprovalRequested(a, hooks.Links{})
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Error("another tenant's approval was not told")
	}
	if failed := h.Stats().Questions["failed"]; failed < 1100-512 {
		t.Errorf("%d messages of a tenant were refused, of 1100", failed)
	}
}
