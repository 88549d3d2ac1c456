package ws_test

import (
	"context"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/client"
)

// asker is a pod that asks people: a gateway, its approval.Service and its Invoker. Its devices are ada's.
type asker struct {
	*gateway
	keeper  *approval.Service
	invoker *agent.Invoker
}

func newAsker(t *testing.T, store *memory.Store) *asker {
	t.Helper()
	a := &asker{}
	a.gateway = newGatewayOn(t, store, func(c *ws.Config) {
		a.keeper = approval.New(approval.Config{
			Store: store, Pods: store, Note: c.Pod.Calls.Note, Show: c.Pod.Approvals.Show,
		})
		c.Auth, c.Decisions = userAuth{}, a.keeper
	})
	t.Cleanup(a.keeper.Close)
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	must(t, err)
	a.invoker = agent.NewInvoker(agent.Config{
		Pod: a.pod.ID(), Router: a.pod.Router, CallLog: a.pod.Calls, Policy: policy, Approvals: a.keeper,
	})
	a.keeper.Serve(a.invoker)
	return a
}

// end is how a call of the Invoker ended.
type end struct {
	out agent.Outcome
	err error
}

// ask calls a tool that somebody must allow.
func (a *asker) ask(session, args string, change func(*agent.Request)) <-chan end {
	a.t.Helper()
	req := agent.Request{
		Caller: auth.Identity{Tenant: "acme", User: "ada", Roles: auth.RoleCaller, Credential: "key:agent"},
		Tool:   "snap", Args: registry.MustJSON(args), Target: registry.Target{SessionID: session},
	}
	if change != nil {
		change(&req)
	}
	ended := make(chan end, 1)
	go func() {
		out, err := a.invoker.Invoke(context.Background(), req)
		ended <- end{out, err}
	}()
	return ended
}

// person is an Approver: what it is asked, and what it answers when it is told to.
type person struct {
	questions chan client.Question
	answers   chan client.Decision
	ended     chan error // why a question needed no answer
}

func newPerson() *person {
	return &person{make(chan client.Question, 8), make(chan client.Decision, 8), make(chan error, 8)}
}

func (p *person) decide(ctx context.Context, q client.Question) client.Decision {
	p.questions <- q
	select {
	case d := <-p.answers:
		return d
	case <-ctx.Done():
		p.ended <- context.Cause(ctx)
		return client.AllowOnce // too late
	}
}

var snapTool = client.WithTool(client.Tool{Name: "snap", SecurityLevel: string(registry.SecurityUserConfirm)}, echo)

// TestThePersonAtTheDeviceDecides: the device is on one pod, the call comes in on another.
func TestThePersonAtTheDeviceDecides(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	home, away := newAsker(t, store), newAsker(t, store)
	ada := newPerson()
	_, states, _ := home.runSDK(client.WithSession("phone"), snapTool, client.WithApprover(ada.decide))
	connected(t, states, 1)

	ended := away.ask("phone", `{"lens":"fr\u200bont"}`, nil)
	q := receive(t, ada.questions)
	if q.ID == "" || q.Tool != "snap" || string(q.Args) != `{"lens":"fr\u200bont"}` || q.Reason == "" ||
		!strings.Contains(q.Text, `fr\u200bont`) || len(q.Remarks) == 0 {
		t.Errorf("asked %+v", q)
	}
	ada.answers <- client.AllowOnce
	if e := receive(t, ended); e.err != nil || !e.out.Result.Success {
		t.Errorf("allowed: %+v", e)
	}
	a, err := store.Approval(t.Context(), "acme", q.ID)
	if err != nil || a.State != registry.ApprovalAllowed || a.DecidedBy != "session:phone" {
		t.Errorf("decided %+v, %v", a.Verdict, err)
	}

	ended = away.ask("phone", `{}`, nil)
	receive(t, ada.questions)
	ada.answers <- client.Deny
	if e := receive(t, ended); registry.AsError(e.err).Code != registry.CodeApprovalDenied {
		t.Errorf("denied: %+v", e)
	}
}

// A question that somebody else answers leaves the screen, wherever the device is.
func TestTheDeviceHearsThatSomebodyElseDecided(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	home, away := newAsker(t, store), newAsker(t, store)
	ada := newPerson()
	_, states, _ := home.runSDK(client.WithSession("phone"), snapTool, client.WithApprover(ada.decide))
	connected(t, states, 1)
	ended := away.ask("phone", `{}`, nil)
	q := receive(t, ada.questions)
	boss := auth.Identity{Tenant: "acme", Roles: auth.RoleApprover, Credential: "key:boss"}
	_, err := away.keeper.Decide(t.Context(), boss, q.ID, approval.Decision{})
	must(t, err)
	if why := receive(t, ada.ended); why == nil || !strings.Contains(why.Error(), "denied") {
		t.Errorf("the question ended with %v", why)
	}
	if e := receive(t, ended); registry.AsError(e.err).Code != registry.CodeApprovalDenied {
		t.Errorf("the call ended with %+v", e)
	}
}

// TestADeviceThatConnectsLateIsAsked: the question was asked while the device was away, and it comes back to another
// pod. There it is told what became of the question, too.
func TestADeviceThatConnectsLateIsAsked(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	first, second := newAsker(t, store), newAsker(t, store)
	d := first.connect("phone")
	d.send(`{"type":"connect","v":1,"capabilities":["cancel"]}`)
	d.expect("connected")
	d.send(`{"type":"register_tools","tools":[{"name":"snap","description":"","security_level":"user_confirm"}]}`)
	d.expect("tools_registered")
	var calls []string
	for range 2 {
		e := receive(t, first.ask("phone", `{"n":1}`, func(r *agent.Request) { r.Async = true }))
		must(t, e.err)
		calls = append(calls, e.out.CallID)
	}
	must(t, d.conn.Close())
	first.waitReleased()

	ada := newPerson()
	_, states, _ := second.runSDK(client.WithSession("phone"), snapTool, client.WithApprover(ada.decide))
	connected(t, states, 1)
	questions := []client.Question{receive(t, ada.questions), receive(t, ada.questions)}
	if questions[0].ID == questions[1].ID || string(questions[0].Args) != `{"n":1}` {
		t.Fatalf("asked %+v", questions)
	}
	boss := auth.Identity{Tenant: "acme", Roles: auth.RoleApprover, Credential: "key:boss"}
	_, err := first.keeper.Decide(t.Context(), boss, questions[0].ID, approval.Decision{})
	must(t, err)
	if why := receive(t, ada.ended); why == nil || !strings.Contains(why.Error(), "denied") {
		t.Errorf("the question ended with %v", why)
	}
	ada.answers <- client.AllowOnce
	ends := map[registry.State]int{}
	for _, id := range calls {
		rec, err := second.pod.Calls.Wait(t.Context(), "acme", id, testTimeout)
		must(t, err)
		ends[rec.State]++
	}
	if ends[registry.StateSucceeded] != 1 || ends[registry.StateRejected] != 1 {
		t.Errorf("the calls ended as %v", ends)
	}
}

// TestADeviceThatIsNotAskedDecidesNothing: only a device that has said that a person at it can be asked may answer.
func TestADeviceThatIsNotAskedDecidesNothing(t *testing.T) {
	t.Parallel()
	a := newAsker(t, memory.New(memory.Options{}))
	d := a.connect("phone")
	d.send(`{"type":"connect","v":1,"capabilities":["cancel"]}`)
	d.expect("connected")
	d.send(`{"type":"register_tools","tools":[{"name":"snap","description":"","security_level":"user_confirm"}]}`)
	d.expect("tools_registered")
	e := receive(t, a.ask("phone", `{}`, func(r *agent.Request) { r.Async = true }))
	must(t, e.err)
	phone := a.pod.Hub.Get(registry.Key{Tenant: "acme", Session: "phone"})
	var waiting []registry.Approval
	eventually(t, "the question waits", func() (there bool) {
		var err error
		waiting, err = a.keeper.WaitingAt(t.Context(), phone.Session())
		must(t, err)
		return len(waiting) == 1
	})
	for _, decision := range []string{"allow-once", "allow-always", "deny"} {
		d.send(`{"type":"approval_response","id":"` + waiting[0].ID + `","decision":"` + decision + `"}`)
		d.expectError("APPROVAL_NOT_FOUND", "capabilities")
	}
	if got, err := a.store.Approval(t.Context(), "acme", waiting[0].ID); err != nil || got.Final() {
		t.Errorf("decided %+v, %v", got.Verdict, err)
	}
	d.send(`{"type":"connect","v":1,"capabilities":["approval"]}`)
	d.expect("connected")
	d.expect("approval_request")
	d.send(`{"type":"approval_response","id":"` + waiting[0].ID + `","decision":"deny"}`)
	d.expect("approval_decided")
}
