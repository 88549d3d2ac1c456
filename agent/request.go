package agent

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// MaxArgsDepth is how deep the arguments of a call may nest.
const MaxArgsDepth = schema.MaxDepth

// Request asks for one call.
type Request struct {
	CallID  string // default: a new one
	Caller  auth.Identity
	Tool    string
	Args    registry.JSON // an object; none means {}
	Target  registry.Target
	Select  registry.Select
	Timeout time.Duration // zero: that of the tool, or the configured default if the tool names none

	Endpoint Endpoint // where the call came in, for the Meter

	// Local is a tool to run on this pod; Tool is its name. If Local is nil, Invoke looks for the tool: among the local
	// tools if neither Target nor Conversation is set, else on devices.
	Local Tool

	Conversation registry.Key // the conversation that the call belongs to; zero: none
	Turn         string       // the turn of the conversation

	// Model says that a model asks for the call, in a conversation of the kind Context.
	Model   bool
	Context policy.Context

	// Provenance says where the values of a model's call come from. Nil: nobody knows.
	Provenance *Provenance

	// Async makes Invoke return as soon as the call has a record. The record then says how the call ends.
	Async bool

	// AsyncOver, if it is not zero, makes the call asynchronous if it may take longer, or must be approved by a person.
	AsyncOver time.Duration

	// Suspend makes Invoke return when it has asked for an approval that the call needs, instead of waiting for it:
	// Outcome.Suspended is then set, and nothing runs until a request comes with it as Resume. An asynchronous call,
	// or one with an idempotency key, is not suspended.
	Suspend bool

	// Resume carries on with a call that was suspended, on whatever pod. CallID is that call's. The request must ask
	// for the same: what has changed since the question was asked is not approved.
	Resume *Suspended

	// IdempotencyKey makes repeating the request harmless: the same request with the same key gets the answer of the
	// call that has the key, or joins it while it runs. Such a call goes on when its caller hangs up.
	IdempotencyKey string

	// Release is called once, when Farhand no longer holds the arguments: when the device has the call, else when
	// Invoke returns or, if the call goes on after that, when it has ended. A request with Release is long: its
	// arguments are not kept for hooks either once the device has them. Nil: nobody counts the memory.
	Release func()

	// Forget is called once, by the goroutine of Invoke, if the arguments of a request with Release are not needed for
	// its answer any more, before Invoke returns. May be nil.
	Forget func()

	// OnApproval is told of an approval that the call needs, when it is asked for and when it is final.
	OnApproval func(registry.Approval)

	refused error          // why the call cannot run, if that is known before a tool is looked for
	session SessionContext // of Local
	history *CallHistory   // of a turn whose conversation the caller keeps
	within  time.Time      // the call ends by then, whatever a person's answer takes; zero: as endOf says

	// Of a call that a local tool makes:
	outer  *toolClock    // of the local tool; nil: it is a call of its own
	atMost time.Duration // the timeout of the call is no longer

	where     CallRoute // for the Meter
	argsBytes int
	counted   bool // the Meter has counted this call, or something else counts it when it ends
}

// tell tells OnApproval of an approval.
func (r *Request) tell(a registry.Approval) {
	if r.OnApproval != nil {
		r.OnApproval(a)
	}
}

// forget gives up the arguments of a request. What goes on with them has its own.
func (r *Request) forget() {
	r.Args = registry.JSON{}
	if r.Release != nil && r.Forget != nil {
		r.Forget()
	}
}

// durable reports whether the call outlives its request.
func (r *Request) durable() bool { return r.Async || r.IdempotencyKey != "" }

// Outcome is how a call went. On an error the fields known until then are set.
type Outcome struct {
	CallID    string
	Session   registry.Session
	State     registry.State
	Result    registry.Result
	Duration  time.Duration
	Approval  string   // id of the approval that an asynchronous call waits for, or waited for
	Approvers []string // who may decide about an asynchronous call that was just asked about
	Async     bool     // the call goes on without its request
	Replayed  bool     // the answer is that of an earlier call with the same idempotency key

	Suspended *Suspended // the call waits for a person, and nobody holds it
}

// Read waits until the text of a request, of n bytes, may be read. Only few long texts are read at a time, so that a
// short one never waits for more than one of them. The caller must call done when it has read the text.
func (i *Invoker) Read(ctx context.Context, by share.Owner, n int) (done func(), err error) {
	return i.cfg.Schemas.ReadText(ctx, by, time.Time{}, n)
}

// checkRequestArgs runs checkArgs once the arguments of a request may be read.
func (i *Invoker) checkRequestArgs(ctx context.Context, req *Request, start time.Time) error {
	until := start.Add(i.clamp(req.Timeout, 0))
	done, err := i.cfg.Schemas.ReadText(ctx, req.Caller.Owner(), until, req.Args.Len())
	if err != nil {
		return err
	}
	defer done()
	return checkArgs(req.Args)
}

// noArgs are the arguments of a call that has none.
var noArgs = registry.MustJSON(`{}`)

// checkArgs checks what must hold for the arguments of every call, whatever the tool's schema: they are one JSON object
// of bounded depth.
func checkArgs(args registry.JSON) error {
	if !args.IsObject() {
		return registry.Errorf(registry.CodeInvalidRequest, "args must be a JSON object.")
	}
	if strictjson.Depth(args.Raw()) > MaxArgsDepth {
		return registry.Errorf(registry.CodeInvalidRequest, "args may nest at most %d levels deep.", MaxArgsDepth)
	}
	return nil
}
