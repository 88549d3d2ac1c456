package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRouter knows one tool of one session and remembers what it was asked.
type fakeRouter struct {
	spec       registry.ToolSpec
	resolveErr error
	result     registry.Result
	callErr    error
	during     func(context.Context) // runs in every call; nil: nothing
	remembered *registry.ToolSpec    // what Resolve says the tool is, from memory; nil: the truth
	refreshErr error
	owner      *registry.ToolSpec // the definition that the device's pod compares with; nil: it does not
	user       string             // whose the device is
	device     string             // its device_id; default: phone

	mu        sync.Mutex
	calls     []registry.Call
	ctx       context.Context // of the last call
	refreshed int             // times the truth was asked for
}

func (r *fakeRouter) Resolve(
	_ context.Context, tenant, _ string, t registry.Target, _ registry.Select,
) (registry.Route, error) {
	if r.resolveErr != nil {
		return registry.Route{}, r.resolveErr
	}
	s := registry.Session{
		Key: registry.Key{Tenant: tenant, Session: t.SessionID}, UserID: r.user, DeviceID: cmp.Or(r.device, "phone"),
	}
	if r.remembered != nil {
		return registry.Route{Session: s, Spec: *r.remembered, Remembered: true}, nil
	}
	return registry.Route{Session: s, Spec: r.spec}, nil
}

func (r *fakeRouter) ResolveNow(
	ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select,
) (registry.Route, bool, error) {
	route, err := r.Resolve(ctx, tenant, tool, t, sel)
	return route, false, err
}

func (r *fakeRouter) ResolveAgain(ctx context.Context, old registry.Route) (registry.Route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refreshed++
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) { // as a store over the network
		return registry.Route{}, registry.StoreUnavailable("read the session", context.DeadlineExceeded)
	}
	return registry.Route{Session: old.Session, Spec: r.spec}, r.refreshErr
}

func (r *fakeRouter) Call(ctx context.Context, c registry.Call) (registry.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.ctx = append(r.calls, c), ctx
	if r.during != nil {
		r.during(ctx)
	}
	if r.owner != nil && c.Route.Spec.Hash() != r.owner.Hash() {
		return registry.Result{}, registry.StaleRoute()
	}
	return r.result, r.callErr
}

func (r *fakeRouter) called() []registry.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func spec(name, parameters string) registry.ToolSpec {
	s, err := registry.ToolSpec{Name: name, Parameters: json.RawMessage(parameters)}.Normalize()
	if err != nil {
		panic(err)
	}
	return s
}

func newPolicy(t *testing.T, rules agent.PolicyRules) *agent.Policy {
	t.Helper()
	p, err := agent.NewPolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantCode(t *testing.T, err error, code registry.Code) *registry.Error {
	t.Helper()
	e := registry.AsError(err)
	if err == nil || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return e
}
