package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// desk is an invoker with what it stands on.
type desk struct {
	*agent.Invoker
	router  *fakeRouter
	callLog *fakeCallLog
}

func newDesk(t *testing.T, hooks ...agent.Hook) desk {
	t.Helper()
	d := desk{router: &fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true, Output: "done"}},
		callLog: newCallLog(t)}
	d.Invoker = agent.NewInvoker(agent.Config{
		Router: d.router, CallLog: d.callLog, Policy: newPolicy(t, agent.PolicyRules{CallDeny: []string{"denied"}}),
		Hooks: hooks,
	})
	return d
}

func keyed(key, args string) agent.Request {
	return agent.Request{
		Caller: auth.Identity{Tenant: "default", User: "anna"}, Tool: "t", Args: registry.MustJSON(args),
		Target: registry.Target{SessionID: "s1"}, IdempotencyKey: key,
	}
}

// A plain call is told to the callLog once it has ended, whichever way.
func TestLedgerHearsOfEveryCall(t *testing.T) {
	d := newDesk(t)
	out, err := d.Invoke(t.Context(), keyed("", `{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	d.router.resolveErr = registry.Errorf(registry.CodeToolNotFound, "no")
	refused, err := d.Invoke(t.Context(), keyed("", `{}`))
	wantCode(t, err, registry.CodeToolNotFound)
	ends := d.callLog.ends()
	if len(ends) != 2 {
		t.Fatalf("told of %d calls", len(ends))
	}
	if got := ends[0]; got.rec.CallID != out.CallID || got.rec.SessionID != "s1" || got.rec.DeviceID != "phone" ||
		got.rec.UserID != "anna" ||
		got.rec.Tool != "t" || got.rec.TimeoutMS != agent.DefaultCallTimeout.Milliseconds() || got.err != nil ||
		got.res.Output != "done" {
		t.Errorf("success: %+v", got)
	}
	if got := ends[1]; got.rec.CallID != refused.CallID || registry.AsError(got.err).Code != registry.CodeToolNotFound {
		t.Errorf("failure: %+v", got)
	}
}

func TestCallIDIsTheCallers(t *testing.T) {
	d := newDesk(t)
	id := registry.NewCallID()
	for _, req := range []agent.Request{{CallID: id, Tool: "t"}, {CallID: id, Tool: "t", Async: true}} {
		if out, err := d.Invoke(t.Context(), req); err != nil || out.CallID != id {
			t.Errorf("call %s, %v", out.CallID, err)
		}
	}
	_, err := d.Invoke(t.Context(), agent.Request{CallID: id, Tool: "t", Args: registry.MustJSON("[]")})
	if e := wantCode(t, err, registry.CodeInvalidRequest); e.CallID != id {
		t.Errorf("refused call %s", e.CallID)
	}
}

func TestSameRequestIsReplayed(t *testing.T) {
	d := newDesk(t)
	first, err := d.Invoke(t.Context(), keyed("k", `{"a":1,"b":2}`))
	if err != nil || first.Replayed || first.State != registry.StateSucceeded {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := d.Invoke(t.Context(), keyed("k", ` {"b":2, "a":1} `)) // the same JSON
	if err != nil || !second.Replayed || second.CallID != first.CallID || second.Result.Output != "done" ||
		second.Duration != first.Duration || second.Session.Key.Session != "s1" || second.Session.DeviceID != "phone" {
		t.Fatalf("%+v, %v", second, err)
	}
	if n := len(d.router.called()); n != 1 {
		t.Errorf("%d calls", n)
	}
	if c := d.router.called()[0]; !c.Durable {
		t.Error("the router is not told that the call is durable")
	}
}

func TestOtherRequestWithTheKey(t *testing.T) {
	d := newDesk(t)
	if _, err := d.Invoke(t.Context(), keyed("k", `{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*agent.Request){
		"args":    func(r *agent.Request) { r.Args = registry.MustJSON(`{"a":2}`) },
		"tool":    func(r *agent.Request) { r.Tool = "u" },
		"target":  func(r *agent.Request) { r.Target.UserID = "anna" },
		"select":  func(r *agent.Request) { r.Select = registry.SelectAny },
		"timeout": func(r *agent.Request) { r.Timeout = time.Second },
		"async":   func(r *agent.Request) { r.Async = true },
	} {
		req := keyed("k", `{"a":1}`)
		change(&req)
		_, err := d.Invoke(t.Context(), req)
		if e := wantCode(t, err, registry.CodeIdempotency); e.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, key := range []string{"a b", "ü", strings.Repeat("k", 256), "\n"} {
		_, err := d.Invoke(t.Context(), keyed(key, `{}`))
		wantCode(t, err, registry.CodeInvalidRequest)
	}
}

// A repetition gets the answer even if the call could not be made any more; a first request does not.
func TestReplayOfWhatIsRefusedNow(t *testing.T) {
	d := newDesk(t)
	first, err := d.Invoke(t.Context(), keyed("k", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	d.router.resolveErr = registry.Errorf(registry.CodeNotConnected, "gone").With(registry.DispatchedNo)
	if again, err := d.Invoke(t.Context(), keyed("k", `{}`)); err != nil || again.CallID != first.CallID ||
		!again.Replayed {
		t.Errorf("%+v, %v", again, err)
	}
	_, err = d.Invoke(t.Context(), keyed("other", `{}`))
	wantCode(t, err, registry.CodeNotConnected)
	if ends := d.callLog.ends(); len(ends) != 1 {
		t.Errorf("told of %d refusals", len(ends))
	}
}

// Hooks see a durable call once, however often it is asked for, and the caller's leaving does not end it.
func TestDurableCallOutlivesItsCaller(t *testing.T) {
	ended := new(endings)
	d := newDesk(t, ended)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = d.Invoke(ctx, keyed("k", `{}`))
	out, err := d.Invoke(t.Context(), keyed("k", `{}`))
	if err != nil || out.Result.Output != "done" {
		t.Fatalf("%+v, %v", out, err)
	}
	if ended.Load() != 1 || len(d.router.called()) != 1 {
		t.Errorf("the hook saw %d ends of %d calls", ended.Load(), len(d.router.called()))
	}
}

// A caller whose time is up before the record has ended hears that the device has the call only if the device said so:
// a pod that claims a call may fail before it gives it to the device.
func TestTimeIsUpBeforeTheRecordHasEnded(t *testing.T) {
	for _, c := range []struct {
		events []registry.Event
		want   registry.Dispatched
	}{
		{nil, registry.DispatchedUnknown},
		{[]registry.Event{registry.EventRoute, registry.EventDeliver}, registry.DispatchedUnknown},
		{[]registry.Event{registry.EventRoute, registry.EventDeliver, registry.EventRun}, registry.DispatchedYes},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, release := newDesk(t), make(chan struct{})
			d.router.during = func(context.Context) {
				d.callLog.mu.Lock()
				for _, call := range d.callLog.byID { // there is one
					for _, event := range c.events {
						call.rec.Apply(event, registry.Change{}, time.Now())
					}
				}
				d.callLog.mu.Unlock()
				<-release
			}
			req := keyed("k", `{}`)
			req.Timeout = 300 * time.Millisecond
			out, err := d.Invoke(t.Context(), req)
			close(release)
			if e := wantCode(t, err, registry.CodeTimeout); e.Dispatched != c.want {
				t.Errorf("%s: dispatched %s, want %s", out.State, e.Dispatched, c.want)
			}
		})
	}
}

// endings is a hook that counts.
type endings struct{ atomic.Int64 }

func (*endings) Name() string { return "endings" }

func (e *endings) After(context.Context, agent.Invocation, agent.Outcome, error) { e.Add(1) }

func TestAsyncReturnsAtOnce(t *testing.T) {
	d := newDesk(t)
	out, err := d.Invoke(t.Context(), agent.Request{Caller: auth.Identity{Tenant: "default"}, Tool: "t", Async: true})
	if err != nil || out.State != registry.StateAccepted || out.Replayed {
		t.Fatalf("%+v, %v", out, err)
	}
	rec, err := d.callLog.Wait(t.Context(), "default", out.CallID, time.Minute)
	if err != nil || rec.State != registry.StateSucceeded || rec.Mode != registry.ModeAsync {
		t.Fatalf("%+v, %v", rec, err)
	}
}

// Without a record a durable call is not made: its promise could not be kept.
func TestNoRecordNoCall(t *testing.T) {
	d := newDesk(t)
	d.callLog.startErr = registry.StoreUnavailable("create", context.DeadlineExceeded)
	_, err := d.Invoke(t.Context(), keyed("k", `{}`))
	if e := wantCode(t, err, registry.CodeStoreUnavailable); e.Dispatched != registry.DispatchedNo ||
		len(d.router.called()) != 0 {
		t.Errorf("%+v, %d calls", e, len(d.router.called()))
	}
}
