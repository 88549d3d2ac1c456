package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Tool is anything an agent can call that runs in the gateway: built in, or brought by the program that embeds it.
type Tool interface {
	// Spec describes the tool.
	Spec() registry.ToolSpec

	// Execute runs it. args is a JSON object that satisfies the spec; ctx carries the deadline. A tool that ran and
	// failed returns a Result with Success false and no error.
	Execute(ctx context.Context, args json.RawMessage) (registry.Result, error)
}

// ArgsValidator is what a local Tool may be besides, for rules that no schema can say. Validate is called before
// Authorize and Execute, with arguments that satisfy the schema. Its error ends the call: an *registry.Error as it is,
// any other with registry.CodeInvalidArguments and its text, which the caller reads. Of joined errors each is told.
type ArgsValidator interface {
	Validate(ctx context.Context, args json.RawMessage) error
}

// CallAuthorizer is what a local Tool may be besides, if not everybody may call it. Authorize is called between
// Validate and Execute. Its error ends the call: an *registry.Error as it is, any other with registry.CodeForbidden and
// its text, which the caller reads.
type CallAuthorizer interface {
	Authorize(ctx context.Context, caller auth.Identity, args json.RawMessage) error
}

// ApprovalDemander is what a local Tool may be besides, if a person must approve some of its calls whatever policy
// says. It is asked after Authorize. Its reason is told to the person.
type ApprovalDemander interface {
	DemandsApproval(args json.RawMessage) (reason string, demanded bool)
}

// DeviceCaller is what a local Tool may be besides, if it calls devices (CallDevice): people may be asked about those
// calls, and the record of a call of the tool lasts as long as that may take beside its timeout.
type DeviceCaller interface{ CallsDevices() }

// UnavailableTool is what a local Tool may be besides, if it cannot work here: what it needs is missing. Models are not
// offered it, lists show it as not enabled, and calls of it fail with the reason, which tells an operator what to do.
// An empty reason: it works.
type UnavailableTool interface {
	Unavailable() (reason string)
}

// unavailable returns why a tool cannot work here, empty if it can.
func unavailable(t Tool) string {
	if u, ok := inner(t).(UnavailableTool); ok {
		return u.Unavailable()
	}
	return ""
}

// timed is a context that says when the time of a call is up, for those who go to the store on its way. It sets no
// timer: most calls need none.
type timed struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c timed) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// deadlineOnly is a context reduced to deadline and cancellation: no value of the server reaches a tool through it.
type deadlineOnly struct{ context.Context }

// Value returns nil for every key.
func (deadlineOnly) Value(any) any { return nil }

// toolContext is the context of a local tool, with what its call may use.
type toolContext struct {
	deadlineOnly
	decision *policy.Decision
	report   func(registry.Report) // nil: nobody listens
	call     *toolCall
}

// Value returns what policy says of the call, for policy.DecisionOf, how it reports progress, the call itself, for
// CallDevice and AskedByModel, and nil for every other key.
func (c toolContext) Value(key any) any {
	switch key {
	case reportKey{}:
		return c.report
	case toolCallKey{}:
		return c.call
	}
	if c.decision == nil {
		return nil
	}
	return c.decision.Value(key)
}

type reportKey struct{}

// ReportProgress says how far a local tool is, and passes on a part of its output, while it runs: whoever follows the
// call reads it. ctx is that of Execute. It costs little and never blocks; what nobody listens to is dropped.
func ReportProgress(ctx context.Context, message, chunk string) {
	Report(ctx, registry.Report{Message: message, Chunk: chunk})
}

// Report is ReportProgress for a tool that also knows its progress as a number.
func Report(ctx context.Context, r registry.Report) {
	if report, _ := ctx.Value(reportKey{}).(func(registry.Report)); report != nil {
		report(r)
	}
}

// AfterFunc lets contexts derived from this one hear of its end without a goroutine each: package context looks for
// this method, because the value it would otherwise find its own kind by is hidden.
func (d deadlineOnly) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(d.Context, f) }

// Cause tells why the context ended, which package context could only find among the hidden values.
func (d deadlineOnly) Cause() error { return context.Cause(d.Context) }
