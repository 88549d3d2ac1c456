package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/registry"
)

// Defaults of Config.
const (
	DefaultMaxBody    = 1 << 20 // bytes of a request body
	DefaultMaxStreams = 1000    // event streams open at once
	DefaultMaxTurn    = 10 * time.Minute

	// DefaultStreamGrace is enough for requests that are refused at once, and too short to be taken for silence.
	DefaultStreamGrace = 300 * time.Millisecond
	DefaultTurnWait    = 30 * time.Second

	DefaultMaxCallerStreams = 250
	DefaultMaxServed        = 10_000   // requests with a credential at once
	DefaultMaxResponseBytes = 64 << 20 // of all answers that are made or received at a time
	DefaultMaxRequestBytes  = 64 << 20 // of all longer bodies that are held at a time
)

// Kicker ends a session wherever its socket is. *routing.Hub is one.
type Kicker interface {
	// Kick fails with registry.CodeNotConnected if no socket was there to close.
	Kick(ctx context.Context, s registry.Session) error
}

// Turns ends turns of conversations on whatever pod they run. *routing.Turns is one.
type Turns interface {
	// Abort asks for the end of a turn, and does not wait for it.
	Abort(ctx context.Context, key registry.Key) error

	// Serve adds a function that ends what runs under a key on this pod, and reports whether something did.
	Serve(abort func(registry.Key) bool)
}

// Calls reads, awaits and cancels calls, from any pod. *routing.Calls is one. A call that a tenant may not see does not
// exist for it: registry.CodeCallNotFound.
type Calls interface {
	Get(ctx context.Context, tenant, callID string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	Cancel(ctx context.Context, tenant, callID string) (registry.Record, error)
	Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error)
	List(ctx context.Context, q registry.CallQuery) (page []registry.Record, next string, err error)
	Feed(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]registry.Activity, error)
	FeedEnd(ctx context.Context, tenant string) (string, error)
}

// Live ends what an identity has begun. *auth.Live is one.
type Live interface {
	// Hold returns a context that ends when the identity does, until release is called. Its cause is then an
	// *registry.Error with CodeUnauthenticated.
	Hold(ctx context.Context, id *auth.Identity) (held context.Context, release func())

	// Verify asks the store whether an identity that was proved a while ago, or on another pod, has ended.
	Verify(ctx context.Context, id *auth.Identity) error
}

// AuditLog is what is read of the audit log. registry.AuditStore is one.
type AuditLog interface {
	ReadAudit(ctx context.Context, q registry.AuditQuery) (page []registry.AuditEntry, next string, err error)
}

// Usage is what is read of usage. registry.UsageStore is one.
type Usage interface {
	ReadUsage(ctx context.Context, tenant, day string) ([]registry.UsageRow, error)
}

// Builtins are the tools that live in the gateway itself. What it returns must not change while the process runs. If it
// is an agent.LiveTools besides, those are listed, too.
type Builtins interface {
	Specs() []registry.ToolSpec

	// Tool returns a tool as it is in a context. What cannot work there says so: see agent.UnavailableTool.
	Tool(in policy.Context, name string) agent.Tool
}

// Config has what the HTTP API needs. The first group is required. The functions and interfaces must be safe for
// concurrent use.
type Config struct {
	Invoker       *agent.Invoker
	Calls         Calls
	Directory     registry.Directory
	Conversations registry.ConversationIndex // those that are kept, also of devices that have gone
	AuditLog      AuditLog
	Usage         Usage
	Kicker        Kicker
	Turns         Turns         // aborts turns
	Policy        *agent.Policy // says which of the listed tools are enabled
	Approvals     Approvals     // what people are asked; nil: nobody is
	Auth          auth.Authenticator
	Origins       *auth.Origins

	// Resource says where clients of the MCP get their tokens. The zero value: they bring them.
	Resource Resource

	// States keeps what clients bring back once: tickets for streams of events, and what MCP clients bring back when a
	// person has to approve a call. Nil: there are no tickets, and MCP clients are not asked.
	States mcp.States

	TaskAfter time.Duration // a call that may take longer is a task for MCP clients; default agent.DefaultCallTimeout
	Retention time.Duration // how long records of calls are kept; default registry.DefaultRetention

	Live        Live                     // ends the requests of identities that have ended; nil: nobody does
	Credentials registry.CredentialStore // of API keys; nil: there are none

	Pod      string           // id of this pod, sent as X-Farhand-Pod with every response
	Version  string           // of the program, shown by /healthz and /openapi.json; default "dev"
	Agent    chat.Agent       // holds conversations; nil: no model is configured, and routes that need one answer so
	Builtins Builtins         // listed beside the devices' tools; nil: none
	Refusals *auth.Refusals   // notes who was refused; default: in Log
	Audit    auth.Auditor     // notes what admins do; default: nobody
	Files    Files            // of results; nil: their routes are not there
	Pairing  *pairing.Service // pairs devices; nil: its routes are not there

	// Ended is told of a session that a caller deleted, after its conversation was erased; nil: nobody is.
	Ended func(ctx context.Context, key registry.Key)

	Ready    func(ctx context.Context) error // nil error: this pod can serve; default: always
	Warnings func() []string                 // words for what an operator should look at; default: nothing
	Draining context.Context                 // ends when this pod begins to stop; default: never
	Closing  context.Context                 // ends when a turn that begins would not get far; default: Draining
	Metrics  http.Handler                    // mounted at GET /metrics for admins; nil: not mounted
	Meter    Meter                           // counts every request; nil: nobody does
	Device   http.Handler                    // devices' WebSockets, mounted at GET /ws/chat; nil: not mounted

	DeviceLimits registry.DeviceLimits // shown to callers

	// DeviceMCP takes the WebSockets of devices that speak MCP, mounted at GET /ws/mcp; nil: not mounted.
	DeviceMCP http.Handler

	MaxBody        int64         // bytes of a request body; default DefaultMaxBody
	MaxCallTimeout time.Duration // what the Invoker clamps to; default agent.DefaultMaxCallTimeout
	MaxTurn        time.Duration // the Agent's limit of a turn once its conversation is free; default DefaultMaxTurn
	TurnWait       time.Duration // the Agent's limit of the wait for that; default DefaultTurnWait
	StreamGrace    time.Duration // longest wait for a failure before a streamed turn begins; default DefaultStreamGrace
	MaxStreams     int           // event streams open at once, streamed turns among them; default DefaultMaxStreams
	IgnoreDebug    bool          // nobody is shown what the model is asked: debug in messages has no effect
	Log            *slog.Logger  // default: discard
	AccessLog      AccessLog     // which requests have a line in Log; default AccessLogSampled

	MaxServed        int          // requests with a credential served at once; default DefaultMaxServed
	MaxCallerStreams int          // event streams of one identity; default DefaultMaxCallerStreams
	Sources          auth.Sources // says where a request comes from

	MaxResponseBytes int64 // of the longer answers that are made or received at a time; default DefaultMaxResponseBytes
	MaxRequestBytes  int64 // of the longer bodies that are held at a time; default DefaultMaxRequestBytes
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Invoker == nil || cfg.Calls == nil || cfg.Directory == nil || cfg.Conversations == nil ||
		cfg.AuditLog == nil || cfg.Usage == nil ||
		cfg.Kicker == nil || cfg.Turns == nil || cfg.Policy == nil || cfg.Auth == nil || cfg.Origins == nil {
		return cfg, errors.New("api: a required field of Config is nil")
	}
	if cfg.Warnings == nil {
		cfg.Warnings = func() []string { return nil }
	}
	if cfg.Ended == nil {
		cfg.Ended = func(context.Context, registry.Key) {}
	}
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) error { return nil }
	}
	if cfg.Audit == nil {
		cfg.Audit = auth.NoAudit{}
	}
	if cfg.Draining == nil {
		cfg.Draining = context.Background()
	}
	if cfg.Closing == nil {
		cfg.Closing = cfg.Draining
	}
	cfg.Approvals = cmp.Or[Approvals](cfg.Approvals, nobody{})
	cfg.Version = cmp.Or(cfg.Version, "dev")
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	cfg.MaxCallTimeout = cmp.Or(cfg.MaxCallTimeout, agent.DefaultMaxCallTimeout)
	cfg.MaxTurn = cmp.Or(cfg.MaxTurn, DefaultMaxTurn)
	cfg.TurnWait = cmp.Or(cfg.TurnWait, DefaultTurnWait)
	cfg.StreamGrace = cmp.Or(cfg.StreamGrace, DefaultStreamGrace)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.MaxServed = cmp.Or(cfg.MaxServed, DefaultMaxServed)
	cfg.MaxCallerStreams = cmp.Or(cfg.MaxCallerStreams, DefaultMaxCallerStreams)
	cfg.MaxResponseBytes = cmp.Or(cfg.MaxResponseBytes, DefaultMaxResponseBytes)
	cfg.MaxRequestBytes = cmp.Or(cfg.MaxRequestBytes, DefaultMaxRequestBytes)
	cfg.TaskAfter = cmp.Or(cfg.TaskAfter, agent.DefaultCallTimeout)
	cfg.Retention = cmp.Or(cfg.Retention, registry.DefaultRetention)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.AccessLog = cmp.Or(cfg.AccessLog, AccessLogSampled)
	cfg.Refusals = cmp.Or(cfg.Refusals, auth.NewRefusals(auth.Sources{}, cfg.Log))
	return cfg, nil
}

// nobody is Approvals of a gateway that asks nobody.
type nobody struct{}

func (nobody) Pending(context.Context, auth.Identity) ([]registry.Approval, error) { return nil, nil }

func (nobody) Wait(context.Context, auth.Identity, string, time.Duration) (registry.Approval, error) {
	return registry.Approval{}, registry.ErrNoApproval
}

func (nobody) Decide(context.Context, auth.Identity, string, approval.Decision) (approval.Answer, error) {
	return approval.Answer{}, registry.ErrNoApproval
}

func (nobody) Grants(context.Context, auth.Identity) ([]registry.Grant, error) { return nil, nil }

func (nobody) Revoke(context.Context, auth.Identity, string) (registry.Grant, error) {
	return registry.Grant{}, registry.ErrNoGrant
}

func (nobody) Withdraw(context.Context, string, string) {}

func (nobody) CountWrongAnswer(context.Context, string, string) (int, error) { return 0, nil }
