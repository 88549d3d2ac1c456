package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// askingDevice is a device that gives back each call that no person has decided.
type askingDevice struct {
	session  *routing.LocalSession
	stubborn bool // it gives back those, too

	mu   sync.Mutex
	got  []bool // of each delivery: was it approved?
	runs int
}

func (d *askingDevice) Deliver(c routing.DeviceCall) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, c.Approved)
	if !c.Approved || d.stubborn {
		go d.session.Return(c.ID, "The rules of the device require it.")
		return nil
	}
	d.runs++
	go d.session.Complete(c.ID, registry.Result{Success: true, Output: "ran"}, func(bool) {})
	return nil
}

func (*askingDevice) Cancel(string, string)     {}
func (*askingDevice) Ping(answered func())      { answered() }
func (*askingDevice) Pulse() (p registry.Pulse) { return p }
func (*askingDevice) Owner() share.Owner        { return share.Owner{} }
func (*askingDevice) Close(routing.CloseCause)  {}

// deciders answer approvals, and count them.
type deciders struct {
	deny, always bool

	mu    sync.Mutex
	asked []registry.Approval
}

func (d *deciders) Granted(context.Context, registry.Approval) (bool, error) { return d.always, nil }

func (d *deciders) Ask(
	_ context.Context, a registry.Approval, _ time.Duration, _ []byte,
) (registry.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, a)
	return a, nil
}

func (d *deciders) Await(_ context.Context, a registry.Approval) (registry.Approval, error) {
	a.Verdict.State = registry.ApprovalAllowed
	if d.deny {
		a.Verdict.State = registry.ApprovalDenied
	}
	return a, nil
}

// A call about which both the policy and the device want a person is asked about once, on one pod or two, with a record
// or without. No call runs twice, and none runs that a person denied.
func TestADevicesQuestionIsAskedOnce(t *testing.T) {
	caller := auth.Identity{Tenant: "t", Credential: "key:1", Roles: auth.RoleCaller}
	approver := auth.Identity{Tenant: "t", Credential: "key:2", Roles: auth.RoleCaller | auth.RoleApprover}
	for name, tt := range map[string]struct {
		who      auth.Identity
		level    registry.SecurityLevel
		model    bool
		people   *deciders // nil: they allow
		stubborn bool
		asked    int
		code     registry.Code
		got      []bool
	}{
		"policy asks":          {who: caller, level: "user_confirm", asked: 1, got: []bool{true}},
		"device asks":          {who: caller, asked: 1, got: []bool{false, true}},
		"a model, device asks": {who: approver, model: true, asked: 1, got: []bool{false, true}},
		"the approver's call":  {who: approver, level: "user_confirm", got: []bool{true}},
		"granted before":       {who: caller, people: &deciders{always: true}, got: []bool{false, true}},
		"denied for the device": {who: caller, people: &deciders{deny: true}, asked: 1,
			code: registry.CodeApprovalDenied,
			got:  []bool{false}},
		"the device insists": {who: caller, stubborn: true, asked: 1, code: registry.CodeApprovalDenied,
			got: []bool{false, true}},
	} {
		for _, remote := range []bool{false, true} {
			for _, durable := range []bool{false, true} {
				people := &deciders{}
				if tt.people != nil {
					people.deny, people.always = tt.people.deny, tt.people.always
				}
				f := newAsking(t, people, tt.level, remote)
				f.device.stubborn = tt.stubborn
				out, err := f.invoker.Invoke(t.Context(), agent.Request{
					Caller: tt.who, Tool: "tool", Args: registry.MustJSON(`{"command":"id"}`), Model: tt.model,
					IdempotencyKey: map[bool]string{true: "k"}[durable], Timeout: 20 * time.Second,
				})
				var code registry.Code
				if err != nil {
					code = registry.AsError(err).Code
				}
				f.device.mu.Lock()
				got, runs := f.device.got, f.device.runs
				f.device.mu.Unlock()
				if code != tt.code || len(people.asked) != tt.asked || !slices.Equal(got, tt.got) ||
					(err == nil) != (runs == 1) || err == nil && out.Result.Output != "ran" {
					t.Errorf("%s, remote %t, durable %t: %v, asked %d times, the device got %v, ran %d times", name,
						remote, durable, err, len(people.asked), got, runs)
				}
				if err != nil && registry.AsError(err).Dispatched != registry.DispatchedNo {
					t.Errorf("%s: dispatched %q", name, registry.AsError(err).Dispatched)
				}
				if tt.asked == 1 && tt.level == "" && (people.asked[0].Rule != "device" ||
					!strings.Contains(people.asked[0].Reason, "rules of the device")) {
					t.Errorf("%s: asked %+v", name, people.asked[0])
				}
			}
		}
	}
}

// asking is an invoker, and a device on the same pod or on another.
type asking struct {
	invoker *agent.Invoker
	device  *askingDevice
}

func newAsking(t *testing.T, people agent.Approvals, level registry.SecurityLevel, remote bool) asking {
	t.Helper()
	store := memory.New(memory.Options{})
	near := askingPod(t, store, "near")
	far := near
	if remote {
		far = askingPod(t, store, "far")
	}
	rules, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := registry.ToolSpec{Name: "tool", SecurityLevel: level}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	device := &askingDevice{}
	session := registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}
	device.session, _, err = far.Hub.Open(t.Context(), session, device)
	if err == nil {
		err = device.session.PutTools(t.Context(), []registry.ToolSpec{spec}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return asking{device: device, invoker: agent.NewInvoker(agent.Config{
		Router: near.Router, CallLog: near.Calls, Policy: rules, Approvals: people,
	})}
}

func askingPod(t *testing.T, store *memory.Store, id string) *routing.Pod {
	t.Helper()
	bus := store.NewBus()
	pod, err := routing.NewPod(routing.PodConfig{ID: id, Store: store, Bus: bus})
	if err == nil {
		err = pod.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := errors.Join(pod.Close(ctx), bus.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return pod
}
