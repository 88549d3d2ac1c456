package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// Capabilities of clients.
const (
	capsForm  = `{"elicitation":{}}`
	capsURL   = `{"elicitation":{"url":{}}}`
	capsTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	capsBoth  = `{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// ask is a request of a client of revision 2026-07-28 that has capabilities.
type ask struct {
	who, path, method, params, caps string
	pod                             int
}

func (f *fleet) ask(a ask) rpc {
	f.Helper()
	if a.path == "" {
		a.path = "/mcp"
	}
	if a.method == "" {
		a.method = "tools/call"
	}
	meta := strings.Replace(mcpMeta, "Capabilities\":{}", "Capabilities\":"+a.caps, 1)
	header := http.Header{
		"Authorization": {"Bearer " + a.who}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {a.method},
	}
	var named struct{ Name, TaskID string }
	f.must(json.Unmarshal([]byte("{"+a.params+"}"), &named))
	if name := named.Name + named.TaskID; name != "" {
		header.Set("Mcp-Name", name)
	}
	return f.rpc(request{
		method: http.MethodPost, path: a.path, pod: a.pod, header: header,
		body: fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s,%s}}`, a.method, a.params, meta),
	})
}

// asked is what a client's user is asked.
type asked struct {
	ResultType    string
	RequestState  string
	InputRequests map[string]struct {
		Method string
		Params struct {
			Mode, Message   string
			RequestedSchema struct{ Properties map[string]any }
		}
	}
}

// question reads a result that asks.
func (r rpc) question(t *testing.T) asked {
	t.Helper()
	var q asked
	r.into(t, &q)
	if q.ResultType != "input_required" || q.RequestState == "" || len(q.InputRequests) != 1 ||
		q.InputRequests["approval"].Method != "elicitation/create" {
		t.Fatalf("%s", r.Result)
	}
	return q
}

// retry is the call again, with what the client's user has answered.
func retry(params, state, answer string) string {
	if answer != "" {
		params += `,"inputResponses":{"approval":` + answer + `}`
	}
	return params + fmt.Sprintf(`,"requestState":%q`, state)
}

const (
	accepts  = `{"action":"accept","content":{}}`
	allows   = `{"action":"accept","content":{"decision":"allow"}}`
	denies   = `{"action":"accept","content":{"decision":"deny"}}`
	declines = `{"action":"decline"}`

	snapIt = `"name":"snap","arguments":{"zoom":2}`
)

// byAnyone is a policy that lets approvers allow the calls of their own models.
const byAnyone = "version: 1\ntools:\n  - {id: default:confirm-model, levels: user_confirm, " +
	"approval: {when: asked by a model, by: anyone}}\n"

// withSnap is a fleet of two pods with ann's phone, whose tool asks for consent.
func withSnap(t *testing.T, redis bool, policy string) (*fleet, *device) {
	s := setup{pods: 2, change: withDeciders, policyFile: policy}
	if redis {
		s.redis = redistest.Single(t)
	}
	f := newFleet(t, s)
	return f, f.connect(0, ofAnn("phone"), echo, confirmable("snap"))
}

// TestMCPApprovals: a client whose user can be asked is told that a person must approve its call, and comes back, to
// whatever pod; what it accepts is to wait for who may decide. Nothing runs before, and what comes back is good once.
func TestMCPApprovals(t *testing.T) {
	for name, redis := range map[string]bool{"memory": false, "redis": true} {
		t.Run(name, func(t *testing.T) {
			f, d := withSnap(t, redis, "")
			q := f.ask(ask{who: "agent", params: snapIt, caps: capsForm, pod: 1}).question(t)
			form := q.InputRequests["approval"].Params
			waiting := f.waiting("ann", 1)[0]
			if form.Mode != "form" || !strings.Contains(form.Message, "farhand approve allow "+waiting.ID) ||
				len(form.RequestedSchema.Properties) != 0 || strings.Contains(form.Message, "zoom") {
				t.Errorf("%+v, %+v", form, waiting)
			}
			done := make(chan rpc, 1)
			params := retry(snapIt, q.RequestState, allows) // a caller that says so decides nothing
			go func() { done <- f.ask(ask{who: "agent", params: params, caps: capsForm}) }()
			f.as("ann", request{
				method: http.MethodPost, path: "/api/approvals/" + waiting.ID, body: `{"decision":"allow-once"}`,
				pod: 1,
			}).want(200)
			if res := (<-done).tool(t); res.Content[0].Text != `{"zoom":2}` || res.IsError {
				t.Errorf("%+v", res)
			}
			got := f.ask(ask{who: "agent", params: params, caps: capsForm})
			if got.Error == nil || got.Error.Code != -32602 {
				t.Errorf("a replay: %s %+v", got.Result, got.Error)
			}
			if n := len(d.calls); n != 1 {
				t.Errorf("the tool ran %d times", n)
			}
		})
	}
}

// TestMCPStatesOfOthers: a state is good for the same call of the same caller, unchanged, and nobody learns why it is
// not. Who tries another's does not use it up.
func TestMCPStatesOfOthers(t *testing.T) {
	f, d := withSnap(t, false, "")
	f.connect(0, ofAnn("tablet"), echo, confirmable("snap2"))
	state := f.ask(ask{who: "agent", params: snapIt, caps: capsForm}).question(t).RequestState
	const snap2 = `"name":"snap2","arguments":{"zoom":2}`
	flipped := []byte(state)
	flipped[len(flipped)/2] ^= 1
	text := ""
	for name, a := range map[string]ask{
		"another's":         {who: "other", params: retry(snapIt, state, accepts)},
		"an approver's":     {who: "ann", params: retry(snapIt, state, allows)},
		"another user's":    {who: "bot", params: retry(snapIt, state, accepts)},
		"another tenant's":  {who: "acme", params: retry(snapIt, state, accepts)},
		"other arguments":   {who: "agent", params: retry(`"name":"snap","arguments":{"zoom":3}`, state, accepts)},
		"no arguments":      {who: "agent", params: retry(`"name":"snap"`, state, accepts)},
		"another tool":      {who: "agent", params: retry(snap2, state, accepts)},
		"another scope":     {who: "agent", path: "/mcp/sessions/phone", params: retry(snapIt, state, accepts)},
		"a changed state":   {who: "agent", params: retry(snapIt, string(flipped), accepts)},
		"half a state":      {who: "agent", params: retry(snapIt, state[:len(state)/2], accepts)},
		"an empty state":    {who: "agent", params: retry(snapIt, "", accepts)},
		"a made-up state":   {who: "agent", params: retry(snapIt, "eyJvbmNlIjoiYSIsInN0YXRlIjp7fX0", accepts)},
		"a long state":      {who: "agent", params: retry(snapIt, strings.Repeat("A", 1<<16), accepts)},
		"a state of a list": {who: "agent", params: snapIt + `,"requestState":["` + state + `"]`},
	} {
		a.caps = capsForm
		got := f.ask(a)
		if a.who == "bot" || a.who == "acme" { // for whom there is no such tool
			if got.Error == nil {
				t.Errorf("%s: %s", name, got.Result)
			}
			continue
		}
		if got.Error == nil || got.Error.Code != -32602 || text != "" && got.Error.Message != text {
			t.Errorf("%s: %s %+v", name, got.Result, got.Error)
			continue
		}
		text = got.Error.Message
	}
	for name, inputs := range map[string]string{
		"a number":   `"inputResponses":7`,
		"a list":     `"inputResponses":[{}]`,
		"null":       `"inputResponses":null`,
		"no object":  `"inputResponses":{"approval":12345}`,
		"too much":   `"inputResponses":{"x":{"a":"` + strings.Repeat("a", 10<<10) + `"}}`,
		"two of one": `"inputResponses":{"approval":{},"approval":{}}`,
	} {
		got := f.ask(ask{who: "agent", params: snapIt + `,"requestState":"` + state + `",` + inputs, caps: capsForm})
		if got.Error == nil || got.Error.Code != -32602 && got.Error.Code != -32600 {
			t.Errorf("inputs: %s: %s %+v", name, got.Result, got.Error)
		}
	}
	q := f.ask(ask{who: "agent", params: retry(snapIt, state, ""), caps: capsForm}).question(t) // it is still good
	if q.RequestState == state {
		t.Error("the same state again")
	}
	got := f.ask(ask{who: "agent", params: retry(snapIt, q.RequestState, declines), caps: capsForm})
	if got.Error == nil || got.Error.Data.Code != registry.CodeApprovalDenied ||
		got.Error.Data.Dispatched != registry.DispatchedNo {
		t.Errorf("declined: %s %+v", got.Result, got.Error)
	}
	f.waiting("ann", 0)
	if len(d.calls) != 0 {
		t.Error("something ran")
	}
}

// TestMCPStateIsConsumedOnce: of many who bring one state back at the same moment, to several pods, one gets in.
func TestMCPStateIsConsumedOnce(t *testing.T) {
	for name, redis := range map[string]bool{"memory": false, "redis": true} {
		t.Run(name, func(t *testing.T) {
			f, d := withSnap(t, redis, "")
			state := f.ask(ask{who: "agent", params: snapIt, caps: capsForm}).question(t).RequestState
			id := f.waiting("ann", 1)[0].ID
			f.as("ann", request{
				method: http.MethodPost, path: "/api/approvals/" + id, body: `{"decision":"allow-once"}`,
			}).want(200)
			var wg sync.WaitGroup
			ran := make(chan bool, 16)
			for i := range cap(ran) {
				wg.Go(func() {
					got := f.ask(ask{who: "agent", params: retry(snapIt, state, accepts), caps: capsForm, pod: i % 2})
					ran <- got.Error == nil
				})
			}
			wg.Wait()
			close(ran)
			n := 0
			for ok := range ran {
				if ok {
					n++
				}
			}
			if n != 1 || len(d.calls) != 1 {
				t.Errorf("%d got in, the tool ran %d times", n, len(d.calls))
			}
		})
	}
}

// TestMCPApproverAnswers: who may decide the approval anyway decides it in the form, once, and no other word is a
// decision.
func TestMCPApproverAnswers(t *testing.T) {
	f, d := withSnap(t, false, byAnyone)
	begin := func() asked { return f.ask(ask{who: "ann", params: snapIt, caps: capsForm}).question(t) }
	q := begin()
	form := q.InputRequests["approval"].Params
	if !strings.Contains(form.Message, `"zoom": 2`) || form.RequestedSchema.Properties["decision"] == nil {
		t.Errorf("%+v", form)
	}
	again := f.ask(ask{who: "ann", params: retry(snapIt, q.RequestState, accepts), caps: capsForm}).question(t)
	if len(d.calls) != 0 {
		t.Fatal("it ran although nobody decided")
	}
	res := f.ask(ask{who: "ann", params: retry(snapIt, again.RequestState, allows), caps: capsForm}).tool(t)
	if res.IsError {
		t.Errorf("%+v", res)
	}
	for _, no := range []string{denies, declines} {
		got := f.ask(ask{who: "ann", params: retry(snapIt, begin().RequestState, no), caps: capsForm})
		if got.Error == nil || got.Error.Data.Code != registry.CodeApprovalDenied {
			t.Errorf("%s: %s %+v", no, got.Result, got.Error)
		}
	}
	if len(d.calls) != 1 {
		t.Errorf("the tool ran %d times", len(d.calls))
	}
}

// TestMCPWrongAnswers: a wrong answer of who may decide says what was wrong and is asked for again, twice; the third
// gives the call up.
func TestMCPWrongAnswers(t *testing.T) {
	f, d := withSnap(t, false, byAnyone)
	q := f.ask(ask{who: "ann", params: snapIt, caps: capsForm}).question(t)
	for answer, why := range map[string]string{
		`{"action":"accept","content":{"decision":"yes"}}`: `"decision" must be "allow" or "deny"`,
		`{"action":"approve"}`:                             `"action" must be "accept", "decline" or "cancel"`,
	} {
		q = f.ask(ask{who: "ann", params: retry(snapIt, q.RequestState, answer), caps: capsForm}).question(t)
		if form := q.InputRequests["approval"].Params; !strings.Contains(form.Message, why) {
			t.Errorf("%s: %+v", answer, form)
		}
	}
	got := f.ask(ask{who: "ann", params: retry(snapIt, q.RequestState, accepts), caps: capsForm})
	if got.Error == nil || got.Error.Data.Code != registry.CodeApprovalDenied ||
		!strings.Contains(got.Error.Message, "None of 3 answers was a decision") {
		t.Errorf("the third: %s %+v", got.Result, got.Error)
	}
	if f.waiting("ann", 0); len(d.calls) != 0 {
		t.Error("it ran")
	}
}

// TestMCPApproverOfItsOwnCall: by default the credential that made a call cannot allow it in the form, although it has
// the role; it may give the call up, and another approver decides.
func TestMCPApproverOfItsOwnCall(t *testing.T) {
	f, d := withSnap(t, false, "version: 1\ntools:\n  - {id: everybody, names: snap, approval: always}\n")
	q := f.ask(ask{who: "ann", params: snapIt, caps: capsForm}).question(t)
	if form := q.InputRequests["approval"].Params; form.RequestedSchema.Properties["decision"] != nil {
		t.Errorf("ann is asked about her own call: %+v", form)
	}
	done := make(chan rpc, 1)
	params := retry(snapIt, q.RequestState, allows)
	go func() { done <- f.ask(ask{who: "ann", params: params, caps: capsForm}) }()
	id := f.waiting("anne", 1)[0].ID
	wantProblem(f.decide("ann", id, allowOnce, 1), 403, registry.CodeForbidden)
	if len(d.calls) != 0 {
		t.Fatal("a caller has allowed its own call")
	}
	f.decide("anne", id, allowOnce, 1).want(200)
	if res := (<-done).tool(t); res.IsError || len(d.calls) != 1 {
		t.Errorf("%+v", res)
	}
}

// TestMCPApprovalsWithoutForms: a client that cannot ask its user waits as callers over HTTP do.
func TestMCPApprovalsWithoutForms(t *testing.T) {
	f, _ := withSnap(t, false, "")
	for _, caps := range []string{`{}`, capsURL, `{"elicitation":7}`} {
		done := make(chan rpc, 1)
		go func() { done <- f.ask(ask{who: "agent", params: snapIt, caps: caps}) }()
		id := f.waiting("ann", 1)[0].ID
		f.as("ann", request{
			method: http.MethodPost, path: "/api/approvals/" + id, body: `{"decision":"allow-once"}`, pod: 1,
		}).want(200)
		if res := (<-done).tool(t); res.IsError {
			t.Errorf("%s: %+v", caps, res)
		}
	}
}

// TestMCPApprovalOfAnotherTool: what was approved is the tool as it was when the question was asked. A tool that is
// defined anew meanwhile is not called.
func TestMCPApprovalOfAnotherTool(t *testing.T) {
	f, d := withSnap(t, false, "")
	state := f.ask(ask{who: "agent", params: snapIt, caps: capsForm}).question(t).RequestState
	f.as("ann", request{
		method: http.MethodPost, path: "/api/approvals/" + f.waiting("ann", 1)[0].ID, body: `{"decision":"allow-once"}`,
	}).want(200)
	other, err := registry.ToolSpec{
		Name: "snap", Description: "Takes a picture, and posts it.", SecurityLevel: registry.SecurityUserConfirm,
	}.Normalize()
	f.must(err)
	f.must(d.local.PutTools(f.Context(), []registry.ToolSpec{other}, nil))
	got := f.ask(ask{who: "agent", params: retry(snapIt, state, accepts), caps: capsForm})
	if got.Error == nil || got.Error.Data.Code != registry.CodeApprovalDenied || len(d.calls) != 0 {
		t.Errorf("%s %+v, ran %d times", got.Result, got.Error, len(d.calls))
	}
}
