// Package agent calls tools for AI agents and for programs: one operation, Invoker.Invoke, behind every API of the
// gateway.
//
//	find the tool ─▶ before hooks ─▶ Tool.Execute ─▶ amending hooks ─▶ after hooks ─▶ record
//
// NewInvoker defines the order of the hooks. Models do not distinguish remote from local tools. A remote tool runs on a
// device. A local tool runs in the gateway: built in (agent/tools), or supplied by the program that embeds the gateway.
// Factories make the local tools of each turn. LocalTools enables them by name. A ToolSet is what one turn may call at
// a moment, local and remote.
//
// Built on it: agent/chat (conversations, with agent/provider for language models), agent/tools (tools of the gateway),
// agent/chat/loopguard (a hook). Start reading at Invoker.Invoke in invoke.go; hooks are in hooks.go.
package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Default timeouts of a call.
const (
	DefaultCallTimeout    = 30 * time.Second
	DefaultMaxCallTimeout = 5 * time.Minute
)

// Router is the part of routing.Router that the Invoker uses.
type Router interface {
	Call(ctx context.Context, c registry.Call) (registry.Result, error)
	Resolve(ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select) (registry.Route, error)
	// ResolveNow is Resolve without waiting. Where Resolve would wait for a device, waits is true and err is set.
	ResolveNow(
		ctx context.Context, tenant, tool string, t registry.Target, sel registry.Select,
	) (route registry.Route, waits bool, err error)
	ResolveAgain(ctx context.Context, remembered registry.Route) (registry.Route, error)
}

// Live ends the calls of an identity when the identity ends. *auth.Live is one.
type Live interface {
	// Bind returns a context that ends when the identity does, until release is called. Its cause is then an
	// *registry.Error with CodeUnauthenticated.
	Bind(ctx context.Context, id *auth.Identity) (held context.Context, release func())

	// Verify asks the store whether a previously authenticated identity has ended. An *registry.Error with
	// CodeUnauthenticated says that it has. Any other error means that the state is unknown.
	Verify(ctx context.Context, id *auth.Identity) error
}

// CallLog is the part of routing.Calls that the Invoker uses.
type CallLog interface {
	// Finish records the end of a call that has no record in the store. It takes ownership of rec.
	Finish(rec *registry.Record, res registry.Result, err error)
	Start(
		ctx context.Context, rec registry.Record, run func(context.Context) (registry.Result, error),
	) (stored registry.Record, created bool, err error)
	ByKey(ctx context.Context, tenant, key string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	// WaitOutcome is Wait for the caller of a call: it also returns an outcome that is not stored yet.
	WaitOutcome(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	// AmendWith registers amend for results before they are stored, for the tools for which amends returns true.
	AmendWith(amend registry.Amend, amends func(tool string) bool)

	// Attend runs wait for a call that waits for a person or a device and has no record. Until wait returns, the call
	// can be looked up and cancelled. Cancelling ends the context of wait.
	Attend(ctx context.Context, rec *registry.Record, wait func(context.Context) error) error

	// Hold, Begin and Refuse are for calls that wait, for a person or their device, and run on no pod. If run fails
	// with a *registry.QueuedAgain, the call is queued again.
	Hold(ctx context.Context, rec registry.Record) (stored registry.Record, created bool, err error)
	Begin(
		ctx context.Context, of share.Owner, callID string, timeout time.Duration,
		run func(context.Context, registry.Record) (registry.Result, error),
	) (begun bool, err error)
	Refuse(ctx context.Context, tenant, callID string, why *registry.Error) (refused bool, err error)
}

// Config configures an Invoker. Router, CallLog and Policy are required.
type Config struct {
	Router     Router
	CallLog    CallLog
	Policy     *Policy
	Schemas    *schema.Validator // default: schema.NewValidator()
	Limits     Hook              // counts calls against the limits of the policy; nil: no limits
	Guards     []Hook            // the gateway's own hooks, such as the loop guard
	Hooks      []Hook            // custom hooks; they run after the guards, before the validation of the arguments
	Approvals  Approvals         // asks people; nil: calls that need approval are refused
	LocalTools *LocalTools       // tools that may be called without a target; nil: none
	Timeout    time.Duration     // for a call when neither the request nor the tool names one; default 30 s
	MaxTimeout time.Duration     // the longest timeout that a request or a tool can get; default 5 min
	Pod        string            // id of this pod: which sessions are here, and which calls wait here
	Meter      Meter             // counts how calls end; nil: calls are not counted
	Audit      auth.Auditor      // records for each call whether it may run; default: no audit
	Live       Live              // ends calls that outlive their caller's identity; nil: never
	Places     Places            // finds the pod with the state of local tools; nil: this pod has all of it
	Queue      Queue             // holds calls for sleeping devices; nil: no call is queued
	QueueTTL   time.Duration     // the longest that a call may wait there; default 24 h
	Defaults   Defaults          // chooses among several devices of a user; nil: the call is ambiguous
	Uploads    Uploads           // gives devices files for arguments; nil: calls cannot have any
	Files      Files             // stores parts of local tools that are too long to be inline; nil: they are dropped
	Log        *slog.Logger      // default: discard
	Tracer     trace.Tracer      // continues the traces of waiting calls; default: off

	// Wake is called after a call was queued for a device, and when the device has left while calls wait for it. device
	// is its registry.Session.DeviceKey. It must not block. May be nil.
	Wake func(ctx context.Context, tenant, device string)

	ApprovalTimeout time.Duration // how long a person has to answer a model's question; default 2 min
	DeferredTimeout time.Duration // the same for asynchronous calls; default 1 h
}

// Invoker runs calls for every API. It is safe for concurrent use.
type Invoker struct {
	cfg    Config
	hooks  pipeline
	custom pipeline // custom hooks; they amend results before they are stored
}

// NewInvoker returns an Invoker. It alone defines the order of the hooks:
//
//	before:  policy ─▶ limits ─▶ guards (loop guard) ─▶ custom hooks ─▶ validation of the arguments ─▶
//	         checks of a local tool (caller, arguments) ─▶ marks ─▶ approval
//	amend:   the same hooks in reverse order, so that guards read the result last and may add to it
//	after:   the same hooks in order; they see what the caller reads
//
// Validation follows the hooks because they may change the arguments. Approval follows both because a person must
// approve what will really run. The before hooks do not run for a call whose tool was not found, or whose arguments are
// not a JSON object: such a call has already failed.
func NewInvoker(cfg Config) *Invoker {
	if cfg.Schemas == nil {
		cfg.Schemas = schema.NewValidator()
	}
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), DefaultCallTimeout)
	cfg.MaxTimeout = cmp.Or(max(cfg.MaxTimeout, 0), DefaultMaxCallTimeout)
	cfg.ApprovalTimeout = cmp.Or(max(cfg.ApprovalTimeout, 0), DefaultApprovalTimeout)
	cfg.DeferredTimeout = cmp.Or(max(cfg.DeferredTimeout, 0), DefaultDeferredTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.QueueTTL = cmp.Or(max(cfg.QueueTTL, 0), registry.DefaultQueueTTL)
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	hooks := slices.Concat(cfg.Guards, cfg.Hooks, []Hook{validation{cfg.Schemas}})
	if cfg.Limits != nil {
		hooks = slices.Insert(hooks, 0, cfg.Limits)
	}
	// The guards are not among these hooks. They amend what a conversation reads. The result of such a call is amended
	// before the call has a record.
	custom := pipeline(cfg.Hooks)
	if slices.ContainsFunc(custom, func(h Hook) bool { _, amends := h.(AmendHook); return amends }) {
		cfg.CallLog.AmendWith(func(ctx context.Context, rec registry.Record, res registry.Result) registry.Result {
			return custom.stored(ctx, cfg.Log, rec, res)
		}, custom.amendsTool)
	}
	i := &Invoker{cfg, hooks, custom}
	if cfg.Places != nil {
		cfg.Places.Serve(registry.PlaceKeeper{Run: i.runErrand})
	}
	return i
}

// noteDecision writes to the audit log that a call may run, or why it may not.
func (i *Invoker) noteDecision(p *prepared, err error) {
	caller := &p.inv.Caller
	e := registry.AuditEntry{
		Tenant: caller.Tenant, Actor: caller.Actor(), Action: registry.AuditCall, Tool: p.req.Tool,
		SessionID: p.route.Session.Key.Session, DeviceID: p.route.Session.DeviceID, CallID: p.inv.CallID,
		Turn: p.inv.Turn, Args: p.inv.Args,
	}
	switch { // the rule that let the call through, unless something refuses it
	case p.inv.Demand != nil:
		e.Rule = p.inv.Demand.Rule
	case p.inv.Policy != nil:
		e.Rule = p.inv.Policy.Rule
	}
	if e.Decide(err); err == nil {
		e.Reason = p.approver
	}
	i.cfg.Audit.Note(e)
}

// CallHistory is what guards remember of the calls of one turn whose conversation the caller keeps. It lasts for the
// turn only. For a conversation that the gateway keeps, registry.ConversationStore has the same (AppendTrail).
// CallHistory is safe for concurrent use; the zero value is empty.
type CallHistory struct {
	mu      sync.Mutex
	entries []string
}

// Append adds an entry and returns the last limit entries, oldest first, including the new one.
func (h *CallHistory) Append(entry string, limit int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, entry)
	h.entries = slices.Delete(h.entries, 0, max(0, len(h.entries)-max(limit, 1)))
	return slices.Clone(h.entries)
}
