package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// deadlines is a response writer that remembers the deadlines it was given.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// The server has no write timeout of its own, so every request must set one. A call's must outlast the call, and once
// the call has ended, its answer has the time of any other: a person's approval may have used up what there was.
func TestWriteDeadlines(t *testing.T) {
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	origins, err := auth.NewOrigins(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(memory.Options{})
	pod, err := routing.NewPod(routing.PodConfig{Store: store, Bus: store.NewBus()})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := NewHandler(Config{
		Invoker: agent.NewInvoker(agent.Config{Router: pod.Router, CallLog: pod.Calls, Policy: policy}),
		Calls:   pod.Calls, Directory: store, Conversations: store, Turns: pod.Turns,
		AuditLog: store, Usage: store, Kicker: pod.Hub, Policy: policy, Auth: auth.Anonymous{}, Origins: origins,
		MaxCallTimeout: 10 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path, body string
		want               time.Duration
	}{
		{http.MethodGet, "/api/tools", "", writeTimeout},
		{http.MethodGet, "/nothing", "", writeTimeout},
		{http.MethodPost, "/api/tools/t/call", "", agent.MaxApprovalTimeout + 10*time.Minute + writeMargin},
		{http.MethodPost, "/api/tools/t/call", `{"timeout_ms":60000}`, time.Minute + writeMargin},
		{http.MethodPost, "/api/tools/t/call", `{"timeout_ms":86400000}`, 10*time.Minute + writeMargin},
		{http.MethodPost, "/api/tools/t/call", `{"mode":"async","timeout_ms":60000}`, writeTimeout},
		{http.MethodGet, "/api/calls/x?wait_ms=60000", "", time.Minute + writeTimeout},
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body)))
		want := []time.Duration{tt.want}
		if tt.method == http.MethodPost {
			want = append(want, writeTimeout)
		}
		for i, last := range w.set[max(0, len(w.set)-len(want)):] {
			if got := time.Until(last); got > want[i] || got < want[i]-testkit.Limit/2 {
				t.Errorf("%s %s %s: %v left for writing, want %v", tt.method, tt.path, tt.body, got, want)
			}
		}
	}
}
