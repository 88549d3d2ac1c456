package agent_test

import (
	"context"
	"encoding/json"
	"errors"
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

// ruled returns an Invoker of one tool, t, under a policy file.
func ruled(t *testing.T, rules string, change func(*agent.Config)) (*agent.Invoker, *fakeRouter) {
	t.Helper()
	p := newPolicy(t, agent.PolicyRules{})
	if err := p.Replace([]byte("version: 1\ntools:\n  - " + rules + "\n")); err != nil {
		t.Fatal(err)
	}
	r := &fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true}}
	cfg := agent.Config{Router: r, CallLog: newCallLog(t), Policy: p}
	if change != nil {
		change(&cfg)
	}
	return agent.NewInvoker(cfg), r
}

var ruledCaller = auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleCaller, Credential: "key:a"}

// The policy bounds the timeout of a call, whoever asks for a longer one.
func TestPolicyBoundsTheTimeout(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{{0, 2 * time.Second}, {time.Minute, 2 * time.Second},
		{time.Second, time.Second}} {
		i, r := ruled(t, "{id: slow, names: t, resources: {maxRuntimeSec: 2}}", nil)
		if _, err := i.Invoke(t.Context(),
			agent.Request{Caller: ruledCaller, Tool: "t", Timeout: c.asked}); err != nil {
			t.Fatal(err)
		}
		if got := r.called()[0].Timeout; got > c.want || got < c.want-500*time.Millisecond {
			t.Errorf("asked for %v: %v, want %v", c.asked, got, c.want)
		}
	}
}

// A local tool is told what it may use.
func TestPolicyTellsResources(t *testing.T) {
	i, _ := ruled(t, "{id: small, names: t, resources: {maxFiles: 3, maxSizeMB: 5, maxProcesses: 1}}", nil)
	var got policy.Resources
	tool := localTool{spec("t", ""), func(ctx context.Context, _ json.RawMessage) (registry.Result, error) {
		got = policy.ResourcesOf(ctx)
		return registry.Result{Success: true}, nil
	}}
	if _, err := i.Invoke(t.Context(), agent.Request{Caller: ruledCaller, Tool: "t", Local: tool}); err != nil {
		t.Fatal(err)
	}
	if want := (policy.Resources{MaxFiles: 3, MaxBytes: 5 << 20, MaxProcesses: 1}); got != want {
		t.Errorf("told %+v, want %+v", got, want)
	}
}

// What policy forbids by where a call, or its arguments, come from does not run, and the rule is named.
func TestPolicyForbidsByOrigin(t *testing.T) {
	outside := &agent.Provenance{Conversation: provenance.New()}
	outside.Conversation.Add(provenance.Outside, "a page", `{"to":"eve@example.com"}`)
	for name, c := range map[string]struct {
		rule   string
		change func(*agent.Request)
		runs   bool
	}{
		"always":           {"always", func(*agent.Request) {}, false},
		"asked directly":   {"asked by a model", func(*agent.Request) {}, true},
		"asked by a model": {"asked by a model", func(r *agent.Request) { r.Model = true }, false},
		"over HTTP":        {"over MCP", func(r *agent.Request) { r.Endpoint = agent.EndpointAPI }, true},
		"over MCP":         {"over MCP", func(r *agent.Request) { r.Endpoint = agent.EndpointMCP }, false},
		"a client without a conversation": {"after untrusted content",
			func(r *agent.Request) { r.Model, r.Endpoint, r.Provenance = true, agent.EndpointMCP, nil }, true},
		"its arguments": {"argument from outside",
			func(r *agent.Request) { r.Model, r.Endpoint, r.Provenance = true, agent.EndpointMCP, nil }, true},
		"in main":         {"outside main", func(*agent.Request) {}, true},
		"in a group":      {"outside main", func(r *agent.Request) { r.Context = "group" }, false},
		"before anything": {"after untrusted content", func(r *agent.Request) { r.Model = true }, true},
		"after a page": {"after untrusted content",
			func(r *agent.Request) { r.Model, r.Provenance = true, outside }, false},
	} {
		i, r := ruled(t, "{id: never, names: t, forbid: "+c.rule+"}", nil)
		req := agent.Request{Caller: ruledCaller, Tool: "t", Args: registry.MustJSON(`{"to":"eve@example.com"}`),
			Provenance: &agent.Provenance{Conversation: provenance.New()}}
		c.change(&req)
		_, err := i.Invoke(t.Context(), req)
		if (err == nil) != c.runs || (len(r.called()) > 0) != c.runs {
			t.Errorf("%s: %v, %d calls", name, err, len(r.called()))
		}
		if e := registry.AsError(err); !c.runs && (e.Code != registry.CodePolicyDenied || e.Rule != "never") {
			t.Errorf("%s: refused with %+v", name, e)
		}
	}
}

// A destination that only the model has named asks, and one of the person does not.
func TestPolicyAsksForDestinations(t *testing.T) {
	for to, runs := range map[string]bool{"planning": true, "cynaavat": false} {
		i, r := ruled(t, "{id: posts, names: t, destinations: /to, approval: argument from outside}", nil)
		from := &agent.Provenance{Conversation: provenance.New()}
		from.Conversation.Add(provenance.Person, "the person", "Post it to planning.")
		from.Conversation.Taint()
		_, err := i.Invoke(t.Context(), agent.Request{Caller: ruledCaller, Tool: "t", Model: true, Provenance: from,
			Args: registry.MustJSON(`{"to":"` + to + `"}`)})
		if (err == nil) != runs || (len(r.called()) > 0) != runs || runs != (len(from.Suspects) == 0) {
			t.Errorf("%s: %v, %d calls, %v", to, err, len(r.called()), from.Suspects)
		}
	}
}

// A call that somebody must allow, from the question to its end, at once and later.
func TestApprovedCallsRunOnce(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, allow := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				approvals := approval.New(approval.Config{Store: memory.New(memory.Options{})})
				defer approvals.Close()
				var log *fakeCallLog
				heard := &ends{}
				i, r := ruled(t, "{id: ask, names: t, approval: always}", func(c *agent.Config) {
					c.Approvals, c.Meter = approvals, heard
					log = c.CallLog.(*fakeCallLog)
				})
				approvals.Serve(i)
				ended := make(chan error, 1)
				var id string
				go func() {
					out, err := i.Invoke(t.Context(), agent.Request{
						Caller: ruledCaller, Tool: "t", Async: async, Args: registry.MustJSON("{}"),
						Target: registry.Target{SessionID: "s1"},
					})
					id = out.CallID
					ended <- err
				}()
				synctest.Wait()
				ann := auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleApprover}
				waiting, err := approvals.Pending(t.Context(), ann)
				if err != nil || len(waiting) != 1 || len(r.called()) > 0 {
					t.Fatalf("%d wait, %d run, %v", len(waiting), len(r.called()), err)
				}
				_, err = approvals.Decide(t.Context(), ann, waiting[0].ID, approval.Decision{Allow: allow})
				if err != nil {
					t.Fatal(err)
				}
				err = <-ended
				if async {
					rec, _ := log.Wait(context.Background(), "t", id, time.Minute)
					_, err = rec.Outcome()
				}
				if (err == nil) != allow || !allow && !errors.Is(err, registry.CodeApprovalDenied) {
					t.Errorf("async %t, allowed %t: ended with %v", async, allow, err)
				}
				want := map[bool]string{true: agent.OutcomeSucceeded, false: string(registry.CodeApprovalDenied)}[allow]
				synctest.Wait()
				if len(heard.ended) != 1 || heard.ended[0].Outcome != want || heard.ended[0].BytesIn != 2 ||
					heard.ended[0].Tool != "t" || heard.ended[0].User != "ann" ||
					heard.ended[0].Route == agent.RouteNone {
					t.Errorf("async %t, allowed %t: counted %+v", async, allow, heard.ended)
				}
				if ran := len(r.called()); ran > 1 || (ran == 1) != allow {
					t.Errorf("async %t, allowed %t: ran %d times", async, allow, ran)
				}
			})
		}
	}
}
