package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// A group call that is refused before its first row has its own status, unless its answer has begun with a heartbeat:
// then the answer ends with the problem.
func TestGroupAnswerOfARefusal(t *testing.T) {
	refused := registry.Errorf(registry.CodeApprovalDenied, "No.").With(registry.DispatchedNo)
	for _, media := range []string{"text/event-stream", mediaNDJSON, mediaJSON} {
		for _, grace := range []time.Duration{time.Nanosecond, time.Hour} {
			said, beat := httptest.NewRecorder(), make(chan struct{})
			c, _ := gin.CreateTestContext(&noted{ResponseRecorder: said, wrote: beat})
			c.Request = httptest.NewRequest(http.MethodPost, "/api/calls", nil)
			c.Request.Header.Set("Accept", media)
			c.Header(headerCallID, "call-1")
			begins := grace < time.Second
			a := newGroupAnswer(c, newResponses(1<<20), share.Owner{})
			failure, gone := a.serve(c, grace, registry.GroupRace, func(context.Context) (agent.Outcome, error) {
				if begins {
					<-beat
				}
				return agent.Outcome{}, refused
			})
			text := said.Body.String()
			switch {
			case gone != nil:
				t.Errorf("%s: %v", media, gone)
			case !begins && (failure != error(refused) || text != ""):
				t.Errorf("%s without a heartbeat: %v %q", media, failure, text)
			case begins && (failure != nil || !strings.Contains(text, `"call_id":"call-1"`) ||
				!strings.Contains(text, `"mode":"race"`) || !strings.Contains(text, `"state":"rejected"`) ||
				!strings.Contains(text, `"problem":{"code":"approval_denied","detail":"No."`)):
				t.Errorf("%s after a heartbeat: %v %q", media, failure, text)
			case begins && media == mediaJSON && !json.Valid([]byte(text)):
				t.Errorf("not JSON: %q", text)
			case begins && media != mediaJSON && !strings.Contains(text, "done"):
				t.Errorf("%s has no end: %q", media, text)
			}
		}
	}
}

// noted closes wrote at the first byte.
type noted struct {
	*httptest.ResponseRecorder
	wrote chan struct{}
	begun bool
}

func (n *noted) Write(b []byte) (int, error) {
	if !n.begun {
		n.begun = true
		close(n.wrote)
	}
	return n.ResponseRecorder.Write(b)
}

// Rows that wait for a slow reader are in the memory for responses. A row without room names the record of its call. An
// answer that ends gives all of it back.
func TestGroupRowsHaveTheMemoryOfResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 100 << 10, 20
		memory := newResponses(1 << 20)
		by := share.Owner{Tenant: "acme", Identity: "ann"}
		said := httptest.NewRecorder()
		c, _ := gin.CreateTestContext(said)
		c.Request = httptest.NewRequest(http.MethodPost, "/api/calls", nil)
		a := newGroupAnswer(c, memory, by)
		failure, gone := a.serve(c, time.Hour, registry.GroupAll, func(ctx context.Context) (agent.Outcome, error) {
			a.Begin("call", registry.GroupAll)
			rows := make(chan group.Row, n)
			var children sync.WaitGroup
			for i := range n {
				children.Go(func() {
					r := group.Row{SessionID: fmt.Sprint("s", i), State: registry.StateSucceeded}
					r.Outcome = agent.Outcome{CallID: fmt.Sprint("c", i), State: r.State, Result: registry.Result{
						Success: true, Output: strings.Repeat("x", size),
					}}
					a.Prepare(ctx, &r)
					rows <- r
				})
			}
			synctest.Wait()
			held, waiting := memory.pool.Stats().Held, memory.made.Stats().Held
			if held < 4*size || held > 512<<10 || waiting < size || waiting > 256<<10 {
				t.Errorf("%d bytes are held, and %d wait", held, waiting)
			}
			go func() {
				children.Wait()
				close(rows)
			}()
			for r := range rows {
				if len(r.Outcome.Result.Output) > 0 {
					t.Error("the result is kept beside its row")
				}
				a.Put(r)
			}
			return agent.Outcome{State: registry.StateSucceeded}, nil
		})
		if failure != nil || gone != nil {
			t.Fatal(failure, gone)
		}
		if held := memory.pool.Stats().Held + memory.made.Stats().Held; held != 0 {
			t.Errorf("%d bytes are not given back", held)
		}
		var table struct {
			Results []wire.GroupResult
			Counts  wire.GroupCounts
		}
		if err := json.Unmarshal(said.Body.Bytes(), &table); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, r := range table.Results {
			switch {
			case r.Output != nil && len(*r.Output) == size:
				whole++
			case r.Problem == nil || r.Problem.Code != wire.ErrorCode(registry.CodeBusy) ||
				r.Dispatched != registry.DispatchedYes || r.State != registry.StateSucceeded ||
				!strings.Contains(r.Problem.Detail, "GET /api/calls/"+r.CallID+" "):
				t.Errorf("%+v", r)
			}
		}
		if len(table.Results) != n || table.Counts.Succeeded != n || whole < 5 || whole > 8 {
			t.Errorf("%d of %d rows are whole: %+v", whole, len(table.Results), table.Counts)
		}
	})
}

// readers counts the readers of a feed, which read for a second.
type readers struct {
	Calls

	mu        sync.Mutex
	now, most int
}

func (r *readers) Get(context.Context, string, string) (registry.Record, error) {
	return registry.NewRecord("parent", "acme", group.Name, nil), nil
}

func (r *readers) List(context.Context, registry.CallQuery) ([]registry.Record, string, error) {
	r.count(1)
	time.Sleep(time.Second) // by the clock of the test's bubble
	r.count(-1)
	return nil, "", nil
}

func (r *readers) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += n
	r.most = max(r.most, r.now)
}

// Requests that repeat a group call read the feed as lists of calls do: a tenant's few at a time.
func TestRepeatedGroupCallsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := new(readers)
		h := &handler{Config: Config{Calls: calls}, responses: newResponses(64 << 20)}
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				c, _ := gin.CreateTestContext(httptest.NewRecorder())
				c.Request = httptest.NewRequest(http.MethodPost, "/api/calls", nil)
				c.Set(keyCaller, auth.Identity{Tenant: "acme", User: "eve"})
				a := newGroupAnswer(c, h.responses, h.owner(c))
				if err := h.replayGroup(t.Context(), c, a, agent.Outcome{CallID: "parent"}); err != nil {
					t.Error(err)
				}
			})
		}
		requests.Wait()
		if calls.most > 2 {
			t.Errorf("%d read at a time", calls.most)
		}
		if held := h.responses.pool.Stats().Held; held != 0 {
			t.Errorf("%d bytes are not given back", held)
		}
	})
}
