package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// remoteHand is a local tool that calls the tool t of a device with its own arguments.
func remoteHand(c agent.DeviceCall) localTool {
	return localTool{spec("hand", ""), func(ctx context.Context, args json.RawMessage) (registry.Result, error) {
		c.Args = registry.MustJSON(string(args))
		out, err := agent.CallDevice(ctx, c)
		return out.Result, err
	}}
}

// picture is a part as a device returns it.
var picture = registry.Part{Type: registry.PartImage, MIMEType: "image/png", Data: []byte("x"), Size: 1}

var toPhone = agent.DeviceCall{Tool: "t", Target: registry.Target{SessionID: "phone"}}

// handed returns an Invoker of a device whose tool is t, under rules of a policy file.
func handed(t *testing.T, tool registry.ToolSpec, rules string, change func(*agent.Config)) (*agent.Invoker,
	*fakeRouter) {
	t.Helper()
	if rules == "" {
		rules = "{id: none, names: nothing, forbid: always}"
	}
	i, r := ruled(t, rules, change)
	r.spec, r.result = tool, registry.Result{Success: true, Output: "done", Parts: []registry.Part{picture}}
	return i, r
}

func confirmed(level registry.SecurityLevel) registry.ToolSpec {
	s := spec("t", "")
	s.SecurityLevel = level
	return s.Hashed()
}

// A call that a local tool makes of a device is its caller's, in every respect.
func TestDeviceCallIsItsCallers(t *testing.T) {
	var seen []agent.Invocation
	hooks := []agent.Hook{hook{name: "see", trace: new([]string), before: func(inv agent.Invocation) (agent.Decision,
		error) {
		seen = append(seen, inv)
		return agent.Pass(), nil
	}}}
	i, r := handed(t, spec("t", ""), "", func(c *agent.Config) { c.Hooks = hooks })
	from := &agent.Provenance{Conversation: provenance.New()}
	out, err := i.Invoke(t.Context(), agent.Request{
		Caller: ruledCaller, Tool: "hand", Local: remoteHand(toPhone), Args: registry.MustJSON(`{"a":1}`),
		Conversation: registry.Key{Tenant: "t", Session: "c"}, Turn: "turn-1", Model: true, Context: policy.Group,
		Provenance: from, Endpoint: agent.EndpointChat,
	})
	if err != nil || out.Result.Output != "done" || len(out.Result.Parts) != 1 || len(r.called()) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if len(seen) != 2 || seen[0].Spec.Name != "hand" || seen[1].Spec.Name != "t" || seen[0].CallID == seen[1].CallID {
		t.Fatalf("hooks saw %+v", seen)
	}
	inner := seen[1]
	if inner.Caller != ruledCaller || inner.Conversation.Session != "c" || inner.Turn != "turn-1" || !inner.Model ||
		inner.Context != policy.Group || inner.Session.Key.Session != "phone" || inner.Args.String() != `{"a":1}` ||
		inner.Provenance == from || inner.Provenance.Conversation != from.Conversation {
		t.Errorf("the device's call was %+v", inner)
	}
}

// What a model must not do with a device's tool it cannot do through a local one.
func TestDeviceCallIsJudgedLikeAnyOther(t *testing.T) {
	admin := auth.Identity{Tenant: "t", Admin: true, Credential: "token"}
	outside := func() *agent.Provenance {
		p := &agent.Provenance{Conversation: provenance.New()}
		p.Conversation.Add(provenance.Outside, "a page", `{"to":"eve@example.com"}`)
		return p
	}
	for name, c := range map[string]struct {
		level  registry.SecurityLevel
		rule   string
		change func(*agent.Request)
		want   registry.Code // empty: it runs
	}{
		"safe": {"", "",
			func(r *agent.Request) { r.Model = true }, ""},
		"admin only, by a model": {registry.SecurityAdminOnly, "",
			func(r *agent.Request) { r.Model, r.Caller = true, admin }, registry.CodePolicyDenied},
		"admin only, directly": {registry.SecurityAdminOnly, "",
			func(r *agent.Request) { r.Caller = admin }, ""},
		"admin only, by a caller": {registry.SecurityAdminOnly, "",
			func(*agent.Request) {}, registry.CodeForbidden},
		"to confirm, by a model": {registry.SecurityUserConfirm, "",
			func(r *agent.Request) { r.Model = true }, registry.CodeApprovalDenied},
		"to confirm, directly": {registry.SecurityUserConfirm, "",
			func(*agent.Request) {}, registry.CodeApprovalDenied},
		"denied by name": {"", "{id: no, names: t, forbid: always}",
			func(*agent.Request) {}, registry.CodePolicyDenied},
		"denied to models": {"", "{id: no, names: t, forbid: asked by a model}",
			func(r *agent.Request) { r.Model = true }, registry.CodePolicyDenied},
		"not denied to callers": {"", "{id: no, names: t, forbid: asked by a model}",
			func(*agent.Request) {}, ""},
		"denied over MCP": {"", "{id: no, names: t, forbid: over MCP}",
			func(r *agent.Request) { r.Endpoint = agent.EndpointMCP }, registry.CodePolicyDenied},
		"not denied over HTTP": {"", "{id: no, names: t, forbid: over MCP}",
			func(r *agent.Request) { r.Endpoint = agent.EndpointAPI }, ""},
		"denied in groups": {"", "{id: no, names: t, contexts: main}",
			func(r *agent.Request) { r.Model, r.Context = true, policy.Group }, registry.CodePolicyDenied},
		"denied in sandboxes": {"", "{id: no, names: t, sandbox: false}",
			func(r *agent.Request) { r.Model, r.Context = true, policy.Sandboxed }, registry.CodePolicyDenied},
		"credentials for one tool": {"", "",
			func(r *agent.Request) { r.Caller.Tools = "hand" }, registry.CodeForbidden},
		"a value from outside": {"", "",
			func(r *agent.Request) { r.Model, r.Provenance = true, outside() }, registry.CodeApprovalDenied},
		"a value from outside, off": {"", "{id: 'default:outside', names: nothing, forbid: always}",
			func(r *agent.Request) { r.Model, r.Provenance = true, outside() }, ""},
	} {
		i, r := handed(t, confirmed(c.level), c.rule, nil)
		hand := remoteHand(toPhone)
		hand.ToolSpec.Annotations = &registry.Annotations{ReadOnlyHint: new(bool)}
		*hand.ToolSpec.Annotations.ReadOnlyHint = true // nobody asks about the local tool
		req := agent.Request{Caller: ruledCaller, Tool: "hand", Local: hand,
			Args: registry.MustJSON(`{"to":"eve@example.com"}`)}
		c.change(&req)
		_, err := i.Invoke(t.Context(), req)
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) ||
			(len(r.called()) == 1) != (err == nil) {
			t.Errorf("%s: %v, %d calls", name, err, len(r.called()))
		}
		if e := registry.AsError(err); err != nil && e.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: dispatched %s", name, e.Dispatched)
		}
	}
}

// A person is asked about the device's call, whoever follows the turn hears of it, and a no reaches the model.
func TestDeviceCallIsApproved(t *testing.T) {
	for _, allow := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			approvals := approval.New(approval.Config{Store: memory.New(memory.Options{})})
			defer approvals.Close()
			i, r := handed(t, confirmed(registry.SecurityUserConfirm), "",
				func(c *agent.Config) { c.Approvals = approvals })
			hand := remoteHand(toPhone)
			hand.ToolSpec.TimeoutMS = (5 * time.Minute).Milliseconds()
			heard := make(chan registry.Approval, 2)
			ended := make(chan error, 1)
			go func() {
				_, err := i.Invoke(t.Context(), agent.Request{
					Caller: ruledCaller, Tool: "hand", Local: hand, Model: true, Args: registry.MustJSON(`{"a":1}`),
					OnApproval: func(a registry.Approval) { heard <- a },
				})
				ended <- err
			}()
			synctest.Wait()
			time.Sleep(time.Minute) // of the test's own clock: longer than the device's call may take
			ann := auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleApprover}
			waiting, err := approvals.Pending(t.Context(), ann)
			if err != nil || len(waiting) != 1 || waiting[0].Tool != "t" || waiting[0].SessionID != "phone" ||
				!waiting[0].Model || len(r.called()) > 0 {
				t.Fatalf("%+v wait, %d run, %v", waiting, len(r.called()), err)
			}
			if _, err = approvals.Decide(t.Context(), ann, waiting[0].ID, approval.Decision{Allow: allow}); err != nil {
				t.Fatal(err)
			}
			err = <-ended
			if (err == nil) != allow || !allow && !errors.Is(err, registry.CodeApprovalDenied) ||
				(len(r.called()) == 1) != allow {
				t.Errorf("allowed %t: ended with %v, %d calls", allow, err, len(r.called()))
			}
			if asked, decided := <-heard, <-heard; asked.Final() || !decided.Final() || asked.Tool != "t" ||
				asked.Args.String() != `{"a":1}` {
				t.Errorf("heard of %+v, %+v", asked, decided)
			}
		})
	}
}

// A device's call never outlives the call of the local tool: neither while it runs nor while a person thinks.
func TestDeviceCallEndsFirst(t *testing.T) {
	for name, c := range map[string]struct {
		outer, asked, own time.Duration // timeouts of the request, the local tool's wish, and the device's tool
		least, most       time.Duration
	}{
		"its own":          {0, 0, 20 * time.Second, 19 * time.Second, 20 * time.Second},
		"the caller's":     {10 * time.Second, 0, 20 * time.Second, 8 * time.Second, 9 * time.Second},
		"the tool's wish":  {25 * time.Second, 15 * time.Second, 20 * time.Second, 14 * time.Second, 15 * time.Second},
		"too long a wish":  {10 * time.Second, time.Minute, 0, 8 * time.Second, 9 * time.Second},
		"a short time all": {time.Second, 0, 0, 800 * time.Millisecond, 900 * time.Millisecond},
	} {
		tool := spec("t", "")
		tool.TimeoutMS = c.own.Milliseconds()
		i, r := handed(t, tool, "", nil)
		call := toPhone
		call.Timeout = c.asked
		_, err := i.Invoke(t.Context(), agent.Request{
			Caller: ruledCaller, Tool: "hand", Local: remoteHand(call), Timeout: c.outer,
		})
		if got := r.called()[0].Timeout; err != nil || got > c.most || got < c.least {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		approvals := approval.New(approval.Config{Store: memory.New(memory.Options{})})
		defer approvals.Close()
		i, _ := handed(t, confirmed(registry.SecurityUserConfirm), "", func(c *agent.Config) {
			c.Approvals = approvals
		})
		began := time.Now()
		_, err := i.Invoke(t.Context(), agent.Request{
			Caller: ruledCaller, Tool: "hand", Local: remoteHand(toPhone), Timeout: 10 * time.Second,
		})
		if took := time.Since(began); !errors.Is(err, registry.CodeApprovalDenied) || took > 10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// handOf is remoteHand as a tool that says that it calls devices.
type handOf struct{ localTool }

func (handOf) CallsDevices() {}

// A person who is asked about a device's call that a local tool makes has as long as about one of its own: the clock of
// the local tool stands still meanwhile, and its record lasts as long.
func TestAPersonsTimeIsNotTheLocalTools(t *testing.T) {
	for name, c := range map[string]struct {
		rule        string
		asks        agent.Request
		takes, life time.Duration
		left        time.Duration // of the device's call once it may run
		hold        time.Duration
		denied      bool
	}{
		"by the default": {takes: 100 * time.Second, life: 2 * time.Minute, left: 29 * time.Second,
			hold: 2 * time.Minute},
		"a model asks": {asks: agent.Request{Model: true}, takes: 100 * time.Second, life: 2 * time.Minute,
			left: 29 * time.Second, hold: 2 * time.Minute},
		"as the policy says": {rule: "{id: slow, names: t, approval: {within: 10m}}", takes: 9 * time.Minute,
			life: 10 * time.Minute, left: 29 * time.Second, hold: 10 * time.Minute},
		"with a key": {asks: agent.Request{IdempotencyKey: "k"}, takes: 100 * time.Second, life: 2 * time.Minute,
			left: 29 * time.Second, hold: 2 * time.Minute},
		"silence": {takes: time.Hour, life: 2 * time.Minute, hold: 2 * time.Minute, denied: true},
		"a caller that waits": {asks: agent.Request{Timeout: time.Minute}, takes: 40 * time.Second,
			life: 53100 * time.Millisecond, left: 19 * time.Second, hold: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				people := &slowPeople{takes: c.takes}
				rule := c.rule
				if rule == "" {
					rule = "{id: ask, names: t, approval: always}"
				}
				log := newCallLog(t)
				i, r := handed(t, spec("t", ""), rule, func(cfg *agent.Config) {
					cfg.Approvals, cfg.CallLog = people, log
				})
				hand := remoteHand(toPhone)
				run := hand.execute
				after := time.Duration(0)
				hand.execute = func(ctx context.Context, args json.RawMessage) (registry.Result, error) {
					res, err := run(ctx, args)
					end, _ := ctx.Deadline()
					after = time.Until(end)
					if ctx.Err() != nil {
						t.Errorf("the tool's time is up: %v", ctx.Err())
					}
					return res, err
				}
				req := c.asks
				req.Caller, req.Tool, req.Local = ruledCaller, "hand", handOf{hand}
				out, err := i.Invoke(t.Context(), req)
				synctest.Wait()
				if len(people.lives) != 1 || people.lives[0] != c.life {
					t.Errorf("the person has %v, want %v", people.lives, c.life)
				}
				calls := r.called()
				if c.denied {
					if !errors.Is(err, registry.CodeApprovalDenied) || len(calls) > 0 {
						t.Errorf("%v, %d calls", err, len(calls))
					}
				} else if err != nil || !out.Result.Success || len(calls) != 1 || calls[0].Timeout != c.left {
					t.Fatalf("%v, %+v; the device has %v, want %v", err, out.Result, calls, c.left)
				}
				if want := 30 * time.Second; c.asks.Timeout == 0 && after != want {
					t.Errorf("the tool has %v left, want %v", after, want)
				}
				if hold := log.holdOf("hand"); hold != c.hold {
					t.Errorf("the record lasts %v more, want %v", hold, c.hold)
				}
			})
		})
	}
}

// holdOf returns how much longer than its timeout the record of the call of a tool lasts.
func (l *fakeCallLog) holdOf(tool string) (hold time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := make([]registry.Record, 0, len(l.finished)+len(l.byID))
	for _, f := range l.finished {
		records = append(records, f.rec)
	}
	for _, e := range l.byID {
		records = append(records, e.rec)
	}
	for _, rec := range records {
		if rec.Tool == tool {
			hold = time.Duration(rec.HoldMS) * time.Millisecond
		}
	}
	return hold
}

// While a person is asked about one of two calls of a local tool, its time does not pass; afterwards it does, and ends
// it.
func TestALocalToolsTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		people := &slowPeople{takes: 100 * time.Second}
		i, _ := handed(t, spec("t", ""), "{id: ask, names: t, approval: always}",
			func(c *agent.Config) { c.Approvals = people })
		began := time.Now()
		hand := localTool{spec("hand", ""), func(ctx context.Context, args json.RawMessage) (registry.Result, error) {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					c := toPhone
					c.Args = registry.MustJSON(string(args))
					if _, err := agent.CallDevice(ctx, c); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("ended by %v", ctx.Err())
			}
			return registry.Result{}, ctx.Err()
		}}
		_, err := i.Invoke(t.Context(), agent.Request{Caller: ruledCaller, Tool: "hand", Local: hand})
		if took := time.Since(began); !errors.Is(err, registry.CodeTimeout) || took != 130*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// When the caller gives up, the device hears of it.
func TestDeviceCallIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i, r := handed(t, spec("t", ""), "", nil)
	r.during = func(call context.Context) {
		cancel()
		<-call.Done()
	}
	r.callErr = registry.Errorf(registry.CodeCancelled, "stopped").With(registry.DispatchedYes)
	_, err := i.Invoke(ctx, agent.Request{Caller: ruledCaller, Tool: "hand", Local: remoteHand(toPhone)})
	if e := wantCode(t, err, registry.CodeCancelled); e.Dispatched != registry.DispatchedYes {
		t.Errorf("%+v", e)
	}
}

// Only a local tool that runs calls devices, and it says which.
func TestDeviceCallNeedsATool(t *testing.T) {
	if _, err := agent.CallDevice(t.Context(), toPhone); !errors.Is(err, registry.CodeInternal) {
		t.Errorf("outside of a tool: %v", err)
	}
	i, r := handed(t, spec("t", ""), "", nil)
	_, err := i.Invoke(t.Context(), agent.Request{
		Caller: ruledCaller, Tool: "hand", Local: remoteHand(agent.DeviceCall{Tool: "t"}),
	})
	if wantCode(t, err, registry.CodeInternal); len(r.called()) > 0 {
		t.Error("a device was called that nobody named")
	}
	r.during = func(ctx context.Context) {
		if _, err := agent.CallDevice(ctx, toPhone); !errors.Is(err, registry.CodeInternal) {
			t.Errorf("on behalf of a device: %v", err)
		}
	}
	if _, err := i.Invoke(t.Context(), agent.Request{
		Caller: ruledCaller, Tool: "hand", Local: remoteHand(toPhone),
	}); err != nil {
		t.Error(err)
	}
}

// A local tool knows whether a model asks, and how.
func TestAskedByModel(t *testing.T) {
	for _, model := range []bool{true, false} {
		i, _ := handed(t, spec("t", ""), "", nil)
		var said bool
		var by agent.Asker
		sc := agent.SessionContext{Caller: ruledCaller, Kind: agent.ContextGroup, Channel: agent.ChannelCall}
		tool := localTool{spec("hand", ""), func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
			said, by = agent.AskedByModel(ctx), sc.Asker(ctx)
			return registry.Result{Success: true}, nil
		}}
		_, err := i.Invoke(t.Context(), agent.Request{
			Caller: ruledCaller, Tool: "hand", Local: tool, Model: model, Endpoint: agent.EndpointMCP,
		})
		want := agent.Asker{
			Who: ruledCaller, Context: agent.ContextGroup, Model: model, Endpoint: agent.EndpointMCP,
		}
		if err != nil || said != model || by != want {
			t.Errorf("by a model %t, said %t %+v, %v", model, said, by, err)
		}
		// It reaches what its caller could call, which is no conversation's.
		if q, reaches := sc.Devices(model); !reaches || q.Viewer != "ann" || q.SessionID != "" {
			t.Errorf("by a model %t, reaches %t %+v", model, reaches, q)
		}
	}
	if agent.AskedByModel(t.Context()) {
		t.Error("nobody asks, and no model")
	}
}
