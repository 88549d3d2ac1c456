package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
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

// The server has no write timeout of its own, so every request must set one. Over HTTP/2 a call's outlasts the call.
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
		Approvals: struct{ Approvals }{},
		Invoker:   agent.NewInvoker(agent.Config{Router: pod.Router, CallLog: pod.Calls, Policy: policy}),
		Calls:     pod.Calls, Directory: store, Conversations: store, Turns: pod.Turns,
		AuditLog: store, Credentials: store,
		Usage: store, Kicker: pod.Hub, Policy: policy, Auth: auth.Anonymous{}, Origins: origins,
		MaxCallTimeout: 10 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		proto              int
		method, path, body string
		want               time.Duration
	}{
		{1, http.MethodGet, "/api/tools", "", writeTimeout},
		{1, http.MethodGet, "/nothing", "", writeTimeout},
		{1, http.MethodPost, "/api/tools/t/call", `{"timeout_ms":60000}`, writeTimeout},
		{2, http.MethodPost, "/api/tools/t/call", "", agent.MaxApprovalTimeout + 10*time.Minute + writeMargin},
		{1, http.MethodGet, "/api/calls/x?wait_ms=60000", "", time.Minute + writeTimeout},
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		r.ProtoMajor = tt.proto
		handler.ServeHTTP(w, r)
		if got := time.Until(w.set[len(w.set)-1]); got > tt.want || got < tt.want-testkit.Limit/2 {
			t.Errorf("%s %s %s: %v left for writing, want %v", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
}

// A call that took long, as one that waited for a person, has the time of any other for its answer.
func TestLateAnswersHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, sets := range map[time.Duration]int{time.Second: 0, time.Hour: 1} {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			c, _ := gin.CreateTestContext(w)
			began := time.Now()
			time.Sleep(took)
			answerInTime(c, began)
			if len(w.set) != sets || sets > 0 && time.Until(w.set[0]) != writeTimeout {
				t.Errorf("after %v: %v", took, w.set)
			}
		}
	})
}
