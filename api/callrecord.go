package api

import (
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// callRecord is the record of a call as clients see it. The members from success on are those of a call's answer. They
// are absent until the device has answered.
type callRecord struct {
	CallID     string               `json:"call_id"`
	Tool       string               `json:"tool"`
	SessionID  string               `json:"session_id,omitempty"`
	DeviceID   string               `json:"device_id,omitempty"`
	UserID     string               `json:"user_id,omitempty"`
	Source     string               `json:"source,omitempty"`
	TurnID     string               `json:"turn_id,omitempty"`
	Mode       string               `json:"mode"`
	State      registry.State       `json:"state"`
	Status     registry.Status      `json:"status"`
	Dispatched registry.Dispatched  `json:"dispatched"`
	Retryable  *bool                `json:"retryable,omitempty"` // like problem, only of calls without a result
	Late       bool                 `json:"late"`
	Timeline   []timelineStep       `json:"timeline"`
	TimeoutMS  int64                `json:"timeout_ms"`
	ApprovalID string               `json:"approval_id,omitempty"` // that it waits for, or waited for
	ArgsDigest string               `json:"args_digest,omitempty"`
	Pod        string               `json:"pod"`
	Owner      string               `json:"owner,omitempty"`
	Success    *bool                `json:"success,omitempty"`
	OutputKept *bool                `json:"output_kept,omitempty"` // false: the next four are not known any more
	Output     *string              `json:"output,omitempty"`
	Structured registry.JSON        `json:"structured,omitzero"`
	Parts      []registry.Part      `json:"parts,omitempty"`
	Violations []registry.Violation `json:"output_violations,omitempty"`
	Error      string               `json:"error,omitempty"`
	Problem    *recordProblem       `json:"problem,omitempty"`
}

type timelineStep struct {
	State registry.State `json:"state"`
	At    string         `json:"at"`
}

// recordProblem says why a call ended without a result, as the answer to its caller does.
type recordProblem struct {
	Code   registry.Code `json:"code"`
	Detail string        `json:"detail"`
}

// recordOf shows a whole record. It says if what the tool returned was not kept.
func recordOf(r registry.Record) callRecord {
	shown := summaryOf(r)
	switch {
	case r.Result == nil:
	case r.Brief:
		shown.OutputKept = new(bool)
	default:
		shown.Output, shown.Structured = &r.Result.Output, r.Result.Structured
		shown.Parts, shown.Violations = r.Result.Parts, r.Result.Violations
	}
	return shown
}

// summaryOf shows a record without the output of its tool.
func summaryOf(r registry.Record) callRecord {
	shown := callRecord{
		CallID: r.CallID, Tool: r.Tool, SessionID: r.SessionID, DeviceID: r.DeviceID, UserID: r.UserID,
		Source: r.Source, TurnID: r.Turn, Mode: r.Mode, State: r.State, Status: r.State.Status(),
		Dispatched: r.Dispatched, Late: r.Late, Timeline: make([]timelineStep, len(r.Timeline)), TimeoutMS: r.TimeoutMS,
		ArgsDigest: r.ArgsDigest, Pod: r.Pod, Owner: r.Owner, ApprovalID: r.Approval,
	}
	for i, step := range r.Timeline {
		shown.Timeline[i] = timelineStep{State: step.State, At: shownTime(step.At)}
	}
	switch {
	case r.Result != nil:
		shown.Success, shown.Error = &r.Result.Success, r.Result.Error
	case r.State.Final():
		_, err := r.Outcome()
		p := auth.ProblemOf(registry.AsError(err))
		shown.Retryable, shown.Problem = p.Retryable, &recordProblem{Code: p.Code, Detail: p.Detail}
	}
	return shown
}

func shownTime(t time.Time) string { return t.UTC().Format(timeFormat) }
