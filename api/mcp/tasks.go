package mcp

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// extensionTasks is the extension that a client declares if it accepts a task instead of a result.
	extensionTasks = "io.modelcontextprotocol/tasks"

	kindTask = "task" // of a result

	// pollInterval is how often a client should poll, in milliseconds.
	pollInterval = "1000"
)

// States of a task.
const (
	taskWorking   = "working"
	taskInput     = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

func (r *request) takesTasks() bool {
	extensions, ok := r.capability("extensions")
	return ok && extensions.get(extensionTasks).IsObject()
}

func (r *request) needTasks() error {
	if r.takesTasks() {
		return nil
	}
	return &rpcError{
		code:    codeMissingCapability,
		message: "Declare the extension " + extensionTasks + " in the client's capabilities of each request.",
		data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + extensionTasks + `":{}}}}`),
	}
}

func (s *Server) task(ctx context.Context, r *request, out *agent.Outcome) (result, error) {
	rec, err := s.cfg.Calls.Get(ctx, r.Caller.Tenant, out.CallID)
	if err != nil { // the call runs, and its caller needs its id
		e := registry.AsError(err).With(registry.DispatchedUnknown)
		e.CallID = out.CallID
		return result{}, e
	}
	return result{kind: kindTask, members: s.appendTask(nil, &rec, taskOf(&rec))}, nil
}

// getTask returns the state of a task, with its result, its failure or its open question.
func (s *Server) getTask(ctx context.Context, r *request) (result, error) {
	rec, err := s.ownTask(ctx, r)
	if err != nil {
		return result{}, err
	}
	state := taskOf(&rec)
	var detail []byte
	switch state {
	case taskWorking:
		if question := s.openQuestion(ctx, r, &rec); question != nil {
			state = taskInput
			detail = append(append([]byte(`,"inputRequests":{"`+keyApproval+`":`), question...), '}')
		}
	case taskCompleted:
		res, err := r.taskResult(&rec)
		if err != nil {
			return result{}, err
		}
		detail = append(append([]byte(`,"result":{"resultType":"complete","_meta":{`), res.meta...), "},"...)
		detail = append(append(detail, res.members...), '}')
	case taskFailed:
		_, failure := rec.Outcome()
		ofCall := *registry.AsError(failure)
		ofCall.CallID = rec.CallID
		e := rpcErrorOf(&ofCall)
		detail = strictjson.AppendString([]byte(`,"statusMessage":`), e.message)
		detail = appendErrorObject(append(detail, `,"error":`...), e)
	}
	return result{members: append(s.appendTask(nil, &rec, state), detail...)}, nil
}

// cancelTask requests the end of a task. Cancelling a finished task has no effect.
func (s *Server) cancelTask(ctx context.Context, r *request) (result, error) {
	rec, err := s.ownTask(ctx, r)
	if err != nil || rec.State.Final() {
		return result{}, err
	}
	rec, err = s.cfg.Calls.Cancel(ctx, r.Caller.Tenant, rec.CallID)
	if err == nil && rec.Approval != "" && rec.State == registry.StateCancelled {
		s.cfg.Approvals.Withdraw(ctx, r.Caller.Tenant, rec.Approval)
	}
	return result{}, err
}

// updateTask applies the answer of the client's user. Answers without an open question are ignored. Only the first
// decision on an approval counts. The last allowed answer, if wrong, cancels the call.
func (s *Server) updateTask(ctx context.Context, r *request) (result, error) {
	inputs, err := r.inputs()
	if err != nil {
		return result{}, err
	}
	rec, err := s.ownTask(ctx, r)
	answer := inputs.get(keyApproval)
	if err != nil || rec.State.Final() || rec.Approval == "" || answer.IsZero() {
		return result{}, err
	}
	decision, wrong := readAnswer(answer)
	switch decides := s.mayDecide(ctx, r, rec.Approval); {
	case wrong != "" && (decides || wrong != noDecision):
		err = s.countWrong(ctx, r, rec.Approval, wrong)
		switch {
		case err != nil || r.wrongAnswers == 0:
			return result{}, err
		case r.wrongAnswers >= maxAnswers:
			return result{}, invalidParams("%s", r.lastWrong())
		}
		return result{}, invalidParams("The answer %q is not a decision: %s (Wrong answer %d of "+
			"%d.)", keyApproval, wrong,
			r.wrongAnswers, maxAnswers)
	case wrong != "" || !decides:
		return result{}, nil
	}
	return result{}, s.decide(ctx, r, rec.Approval, decision)
}

// openQuestion returns the question of a task for the client's user, or nil. Only a user who may decide the approval is
// asked, because other answers have no effect.
func (s *Server) openQuestion(ctx context.Context, r *request, rec *registry.Record) []byte {
	if rec.Approval == "" || rec.State != registry.StateAccepted || !r.asksUser() || !r.Caller.Approves() {
		return nil
	}
	a, err := s.cfg.Approvals.Wait(ctx, r.Caller, rec.Approval, 0)
	if err != nil || a.Final() {
		return nil
	}
	question, decides := s.question(ctx, r, a)
	if !decides {
		return nil
	}
	return question
}

// errNoTask is one error for unknown tasks and for tasks of other callers.
var errNoTask = &rpcError{code: codeInvalidParams, message: "You have no task with this id, or its record has expired."}

// ownTask returns the record of the task that a request names: an asynchronous call of the same caller.
func (s *Server) ownTask(ctx context.Context, r *request) (registry.Record, error) {
	if err := r.needTasks(); err != nil {
		return registry.Record{}, err
	}
	id, ok := r.params.text("taskId")
	if !ok || !isCallID(id) {
		return registry.Record{}, errNoTask
	}
	rec, err := s.cfg.Calls.Get(ctx, r.Caller.Tenant, id)
	if registry.IsCallNotFound(err) || err == nil && !isOwn(r.Caller, &rec) {
		return rec, errNoTask
	}
	return rec, err
}

// isCallID reports whether a text can be the id of a call. Other texts are not sent to the store.
func isCallID(id string) bool { return len(id) == 36 && strings.Trim(id, "0123456789abcdef-") == "" }

func isOwn(who auth.Identity, rec *registry.Record) bool {
	by := auth.OfNote(rec.Tenant, rec.UserID, rec.Caller)
	return rec.Mode == registry.ModeAsync && rec.Tenant == who.Tenant && rec.UserID == who.User &&
		by.Scope() == who.Scope()
}

// taskOf returns the state of a task. A tool that ran and failed is a completed task. A task has failed if its call did
// not run correctly.
func taskOf(rec *registry.Record) string {
	_, err := rec.Outcome()
	e := registry.AsError(err)
	switch {
	case !rec.State.Final():
		return taskWorking
	case err == nil, e.Code == registry.CodeInvalidArguments:
		return taskCompleted
	case rec.State == registry.StateCancelled:
		return taskCancelled
	default:
		return taskFailed
	}
}

func (r *request) taskResult(rec *registry.Record) (result, error) {
	out := agent.Outcome{CallID: rec.CallID, State: rec.State}
	var err error
	out.Result, err = rec.Outcome()
	return r.resultOf(&out, err)
}

// appendTask appends the members that every state of a task has. A task is stored for the longest time of its call,
// plus the retention of call records.
func (s *Server) appendTask(b []byte, rec *registry.Record, state string) []byte {
	first, last := rec.Timeline[0].At, rec.Timeline[len(rec.Timeline)-1].At
	b = strictjson.AppendString(append(b, `"taskId":`...), rec.CallID)
	b = strictjson.AppendString(append(b, `,"status":`...), state)
	b = strictjson.AppendString(append(b, `,"createdAt":`...), first.UTC().Format(time.RFC3339Nano))
	b = strictjson.AppendString(append(b, `,"lastUpdatedAt":`...), last.UTC().Format(time.RFC3339Nano))
	life := max(time.Duration(rec.HoldMS+rec.TimeoutMS)*time.Millisecond, last.Sub(first)) + s.cfg.Retention
	b = strconv.AppendInt(append(b, `,"ttlMs":`...), life.Milliseconds(), 10)
	if rec.State == registry.StateQueued {
		text := "queued: waits for its device, which sleeps, until " + rec.Deadline.UTC().Format(time.RFC3339)
		b = strictjson.AppendString(append(b, `,"statusMessage":`...), text)
	}
	return append(b, `,"pollIntervalMs":`+pollInterval...)
}
