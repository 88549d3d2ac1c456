package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// task is a task as a client reads it.
type task struct {
	ResultType     string
	TaskID         string
	Status         string
	StatusMessage  string
	CreatedAt      time.Time
	LastUpdatedAt  time.Time
	TTLMs          int64
	PollIntervalMs int64
	RequestState   *string
	InputRequests  json.RawMessage
	Result         *toolResult
	Error          *struct {
		Code int
		Data struct{ Code registry.Code }
	}
}

func (r rpc) task(t *testing.T) task {
	t.Helper()
	var is task
	r.into(t, &is)
	if is.TaskID == "" || is.CreatedAt.IsZero() || is.LastUpdatedAt.Before(is.CreatedAt) || is.PollIntervalMs <= 0 ||
		is.TTLMs < registry.DefaultRetention.Milliseconds() || is.RequestState != nil {
		t.Fatalf("%s", r.Result)
	}
	return is
}

// ofTask is a request about a task.
func (f *fleet) ofTask(who, method, id, more string, pod int) rpc {
	f.Helper()
	return f.ask(ask{who: who, method: method, params: fmt.Sprintf(`"taskId":%q`, id) + more, caps: capsBoth, pod: pod})
}

// ended polls a task until it has ended.
func (f *fleet) ended(who, id string, pod int) task {
	f.Helper()
	deadline := time.After(testTimeout)
	for {
		is := f.ofTask(who, "tasks/get", id, "", pod).task(f.T)
		if is.ResultType != "complete" {
			f.Fatalf("resultType %q", is.ResultType)
		}
		if is.Status != "working" && is.Status != "input_required" {
			return is
		}
		f.as(who, request{path: "/api/calls/" + id + "?wait_ms=1000", pod: pod})
		select {
		case <-deadline:
			f.Fatalf("the task is still %s", is.Status)
		default:
		}
	}
}

// slow is a tool that may take a minute.
func slow(name string) registry.ToolSpec {
	spec, err := registry.ToolSpec{Name: name, Description: "Takes its time.", TimeoutMS: 60_000}.Normalize()
	if err != nil {
		panic(err)
	}
	return spec
}

// TestMCPTasks: a call that may take long is a task for a client that knows tasks, and any pod tells its caller what
// has become of it. Other calls, and other clients, get results.
func TestMCPTasks(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	release := make(chan registry.Result)
	d := f.connect(0, ofAnn("phone"), func(c routing.DeviceCall) (registry.Result, bool) {
		if c.Tool == "quick" {
			return registry.Result{Success: true, Output: "quick"}, true
		}
		return <-release, true
	}, slow("dig"), tool("quick", ""))
	const dig = `"name":"dig","arguments":{}`
	quick := f.ask(ask{who: "agent", params: `"name":"quick"`, caps: capsTasks}).tool(t)
	if quick.Content[0].Text != "quick" {
		t.Errorf("%+v", quick)
	}
	for result, want := range map[string]string{"true": "completed", "false": "completed"} {
		begun := f.ask(ask{who: "agent", params: dig, caps: capsTasks}).task(t)
		if begun.ResultType != "task" || begun.Status != "working" {
			t.Fatalf("%+v", begun)
		}
		if is := f.ofTask("agent", "tasks/get", begun.TaskID, "", 1).task(t); is.Status != "working" ||
			is.Result != nil {
			t.Errorf("%+v", is)
		}
		<-d.calls
		release <- registry.Result{Success: result == "true", Output: "found", Error: "found"}
		is := f.ended("agent", begun.TaskID, 1)
		if is.Status != want || is.Result.Content[0].Text != "found" || is.Result.IsError == (result == "true") {
			t.Errorf("%+v", is)
		}
		if got := f.ofTask("agent", "tasks/cancel", begun.TaskID, "", 1); got.Error != nil {
			t.Errorf("cancel what has ended: %+v", got.Error)
		}
	}
	begun := f.ask(ask{who: "agent", params: dig, caps: capsTasks}).task(t)
	<-d.calls
	if got := f.ofTask("agent", "tasks/cancel", begun.TaskID, "", 1); got.Error != nil ||
		!strings.Contains(string(got.Result), `"resultType":"complete"`) {
		t.Errorf("cancel: %s %+v", got.Result, got.Error)
	}
	if is := f.ended("agent", begun.TaskID, 0); is.Status != "cancelled" || is.Result != nil || is.Error != nil {
		t.Errorf("%+v", is)
	}
	close(release)

	plain := make(chan rpc, 1)
	go func() { plain <- f.ask(ask{who: "agent", params: dig, caps: `{}`}) }()
	if res := (<-plain).tool(t); res.ResultType != "complete" {
		t.Errorf("for a client that knows no tasks: %+v", res)
	}
}

// TestMCPTasksOfOthers: a task is its caller's alone; whoever else asks hears what is heard of an id that nobody has.
// A client has to say that it knows tasks, and a call that is none is no task.
func TestMCPTasksOfOthers(t *testing.T) {
	f, _ := withSnap(t, false, "")
	begun := f.ask(ask{who: "agent", params: snapIt, caps: capsTasks}).task(t)
	light := decode[answer](f.as("ann", request{method: http.MethodPost, path: "/api/tools/snap/call", body: `{}`}),
		200)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		unknown := f.ofTask("agent", method, "00000000-0000-4000-8000-000000000000", `,"inputResponses":{}`, 0)
		for who, id := range map[string]string{
			"bot": begun.TaskID, "acme": begun.TaskID, token: begun.TaskID, "ann": light.CallID,
			"agent": "../" + begun.TaskID, "ben": "",
		} {
			got := f.ofTask(who, method, id, `,"inputResponses":{}`, 1)
			if id == "" && got.Error != nil && got.Error.Code == -32020 { // an empty header is none
				continue
			}
			if got.Error == nil || unknown.Error == nil || got.Error.Code != -32602 ||
				got.Error.Message != unknown.Error.Message || got.status != unknown.status {
				t.Errorf("%s of %s: %d %s %+v", method, who, got.status, got.Result, got.Error)
			}
		}
		got := f.ask(ask{who: "agent", method: method, params: fmt.Sprintf(`"taskId":%q`, begun.TaskID),
			caps: capsForm})
		if got.Error == nil || got.Error.Code != -32021 || got.status != http.StatusBadRequest {
			t.Errorf("%s of a client without tasks: %d %+v", method, got.status, got.Error)
		}
	}
	for _, method := range []string{"tasks/list", "tasks/result"} {
		if got := f.ofTask("agent", method, begun.TaskID, "", 0); got.Error == nil || got.Error.Code != -32601 {
			t.Errorf("%s: %+v", method, got.Error)
		}
	}
	f.waiting("ann", 1) // nobody has touched it
}

// TestMCPTasksWithApprovals: a task waits for its approval; only who may decide that is asked by way of tasks, and its
// first answer is the only one.
func TestMCPTasksWithApprovals(t *testing.T) {
	f, d := withSnap(t, false, byAnyone)
	update := func(who, id, answer string) {
		t.Helper()
		got := f.ofTask(who, "tasks/update", id, `,"inputResponses":{"approval":`+answer+`,"unknown":{}}`, 1)
		if got.Error != nil {
			t.Errorf("%s: %+v", answer, got.Error)
		}
	}
	callers := f.ask(ask{who: "agent", params: snapIt, caps: capsBoth}).task(t)
	if is := f.ofTask("agent", "tasks/get", callers.TaskID, "", 1).task(t); is.Status != "working" {
		t.Errorf("a caller is asked: %+v", is)
	}
	update("agent", callers.TaskID, allows)
	if is := f.ofTask("agent", "tasks/get", callers.TaskID, "", 1).task(t); is.Status != "working" ||
		len(d.calls) != 0 {
		t.Errorf("a caller has approved its own call: %+v", is)
	}
	f.ofTask("agent", "tasks/cancel", callers.TaskID, "", 1)
	f.waiting("ann", 0)

	for answer, want := range map[string]string{allows: "completed", denies: "failed"} {
		begun := f.ask(ask{who: "ann", params: snapIt, caps: capsBoth}).task(t)
		is := f.ofTask("ann", "tasks/get", begun.TaskID, "", 1).task(t)
		if is.Status != "input_required" || !strings.Contains(string(is.InputRequests), `"approval"`) {
			t.Errorf("%+v", is)
		}
		if is := f.ask(ask{
			who: "ann", method: "tasks/get", params: fmt.Sprintf(`"taskId":%q`, begun.TaskID), caps: capsTasks,
		}).task(t); is.Status != "working" || is.InputRequests != nil {
			t.Errorf("a client that cannot ask: %+v", is)
		}
		wrong := f.ofTask("ann", "tasks/update", begun.TaskID, `,"inputResponses":{"approval":`+accepts+`}`, 0)
		if wrong.Error == nil || !strings.Contains(wrong.Error.Message, `"decision" must be`) {
			t.Errorf("no decision: %s %+v", wrong.Result, wrong.Error)
		}
		update("ann", begun.TaskID, answer)
		update("ann", begun.TaskID, allows)
		is = f.ended("ann", begun.TaskID, 0)
		if is.Status != want || is.Error != nil && is.Error.Data.Code != registry.CodeApprovalDenied {
			t.Errorf("%s: %+v", answer, is)
		}
	}
	if len(d.calls) != 1 {
		t.Errorf("the tool ran %d times", len(d.calls))
	}
}

// TestMCPTasksWrongAnswers: answers about a task that are no decision say so, on whatever pods they arrive; the third
// gives the call up, and a decision after it is too late.
func TestMCPTasksWrongAnswers(t *testing.T) {
	f, d := withSnap(t, false, byAnyone)
	begun := f.ask(ask{who: "ann", params: snapIt, caps: capsBoth}).task(t)
	for i, c := range []struct{ answer, why string }{
		{accepts, "Wrong answer 1 of 3."}, {`{"action":"approve"}`, "Wrong answer 2 of 3."},
		{accepts, "None of 3 answers was a decision"},
	} {
		got := f.ofTask("ann", "tasks/update", begun.TaskID, `,"inputResponses":{"approval":`+c.answer+`}`, i%2)
		if got.Error == nil || got.Error.Code != -32602 || !strings.Contains(got.Error.Message, c.why) {
			t.Fatalf("answer %d: %s %+v", i+1, got.Result, got.Error)
		}
	}
	f.ofTask("ann", "tasks/update", begun.TaskID, `,"inputResponses":{"approval":`+allows+`}`, 0)
	is := f.ended("ann", begun.TaskID, 1)
	if is.Status != "failed" || is.Error == nil || is.Error.Data.Code != registry.CodeApprovalDenied {
		t.Errorf("%+v", is)
	}
	if f.waiting("ann", 0); len(d.calls) != 0 {
		t.Error("it ran")
	}
}
