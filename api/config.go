package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/erasure"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/group"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/envconf"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// DefaultMaxServed is how many requests with a credential may be in flight by default.
const DefaultMaxServed = 10_000

// defaultGrace is long enough to catch requests that are rejected immediately, and too short to look like a stall.
const defaultGrace = 300 * time.Millisecond

// Kicker ends a session on any pod. *routing.Hub implements it.
type Kicker interface {
	// Kick fails with registry.CodeNotConnected if there is no socket to close.
	Kick(ctx context.Context, s registry.Session) error
}

// Turns ends turns of conversations on any pod. *routing.Turns implements it.
type Turns interface {
	// Abort requests the end of a turn. It does not wait for it.
	Abort(ctx context.Context, key registry.Key) error

	// Serve adds a function that ends the work under a key on this pod, and reports whether there was any.
	Serve(abort func(registry.Key) bool)
}

// Calls reads, awaits and cancels calls of any pod. *routing.Calls implements it. For a call that the tenant may not
// see, it fails with registry.CodeCallNotFound.
type Calls interface {
	Get(ctx context.Context, tenant, callID string) (registry.Record, error)
	Wait(ctx context.Context, tenant, callID string, wait time.Duration) (registry.Record, error)
	Cancel(ctx context.Context, tenant, callID string) (registry.Record, error)
	Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error)
	List(ctx context.Context, q registry.CallQuery) (page []registry.Record, next string, err error)
	Feed(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]registry.Activity, error)
	FeedEnd(ctx context.Context, tenant string) (string, error)
}

// Queue reads the queues of calls that wait for their devices. *routing.Queue implements it.
type Queue interface {
	// Position returns the position of a queued call, from 1 on; zero: unknown.
	Position(ctx context.Context, rec *registry.Record) (int, error)

	// Queued returns the calls that wait for a device, in order. It is named by its registry.Session.DeviceKey.
	Queued(ctx context.Context, tenant, device string, limit int) ([]registry.Record, error)
}

// History limits the bytes that identities add to conversations. *routing.ByteBudget implements it.
type History interface {
	// Begin spends bytes before they are stored. It fails with registry.CodeRateLimited if too few are left.
	Begin(ctx context.Context, by share.Owner, bytes int) error
}

// unbounded is a History without a limit.
type unbounded struct{}

func (unbounded) Begin(context.Context, share.Owner, int) error { return nil }

// Live ends the requests of an identity when the identity ends. *auth.Live implements it.
type Live interface {
	// Bind returns a context that ends when the identity ends, until release is called. Its cause is then an
	// *registry.Error with CodeUnauthenticated.
	Bind(ctx context.Context, id *auth.Identity) (held context.Context, release func())

	// Verify asks the store whether an identity has ended that was verified earlier or on another pod.
	Verify(ctx context.Context, id *auth.Identity) error
}

// AuditLog reads the audit log. registry.AuditStore implements it.
type AuditLog interface {
	ReadAudit(ctx context.Context, q registry.AuditQuery) (page []registry.AuditEntry, next string, err error)
}

// Usage reads usage. registry.UsageStore implements it.
type Usage interface {
	ReadUsage(ctx context.Context, tenant, day string) ([]registry.UsageRow, error)
}

// Builtins are the gateway's own tools. Its results must not change while the process runs. If it also implements
// agent.LiveTools, those tools are listed as well.
type Builtins interface {
	Specs() []registry.ToolSpec

	// Tool returns a tool for a context. A tool that cannot work there says so: see agent.UnavailableTool.
	Tool(in policy.Context, name string) agent.Tool
}

// SignIn says how people sign in at the console. It must return within seconds.
type SignIn func(ctx context.Context) (wire.SignIn, error)

// Pages are the pages for people. *web.Pages implements it. Its methods must return within seconds.
type Pages interface {
	// Paths returns the routes of the pages, in gin's form. They must not change.
	Paths() []string

	// Serve answers a request for one of the routes. If it returns false, there is no such page, and nothing was
	// written.
	Serve(w http.ResponseWriter, r *http.Request) bool
}

// Limits bound requests and responses on this pod. A zero field has its default.
type Limits struct {
	MaxBody          int64 `env:"MAX_BODY" envDefault:"1MiB" doc:"Largest HTTP request body."`
	MaxResponseBytes int64 `env:"MAX_RESPONSE_BYTES" envDefault:"64MiB" doc:"Bytes of HTTP responses over 64 KiB in progress on this pod, at most half per tenant. At the limit, callers that do not read are disconnected. A list's page ends at 1 MiB."`
	MaxRequestBytes  int64 `env:"MAX_REQUEST_BYTES" envDefault:"64MiB" doc:"Bytes of HTTP request bodies over 16 KiB on this pod, until the device or model server has them or the turn ends; at most half per tenant. At the limit, callers that stopped sending are disconnected, and further requests get 429."`
	MaxStreams       int   `env:"MAX_STREAMS" envDefault:"1000" doc:"Open event streams on this pod (/api/events, calls, streamed turns), at most half per tenant."`
	MaxCallerStreams int   `env:"MAX_STREAMS_PER_CALLER" envDefault:"250" doc:"Open event streams per identity, from all its addresses."`
}

// Config configures the HTTP API. The first group of fields is required. The functions and interfaces must be safe for
// concurrent use.
type Config struct {
	Invoker       *agent.Invoker
	Calls         Calls
	Directory     registry.Directory
	Conversations registry.ConversationIndex // those that are stored, also of devices that are gone
	AuditLog      AuditLog
	Usage         Usage
	Defaults      registry.DefaultStore // nil: no routes for default devices
	Tenants       Tenants               // nil: no routes for fleet operators
	Budgets       Budgets               // nil: none
	Kicker        Kicker
	Turns         Turns         // aborts turns
	History       History       // pays for names and erasures of conversations; nil: unlimited
	Policy        *agent.Policy // says which of the listed tools are enabled
	Approvals     Approvals     // open questions to approvers
	Auth          auth.Authenticator
	Credentials   registry.CredentialStore // of API keys
	Erasure       *erasure.Service         // erases persons
	Origins       *auth.Origins

	// Resource says where MCP clients get their tokens. Zero value: they must have one already.
	Resource Resource

	// States stores one-time values: tickets for event streams, and the state that MCP clients send back when a call
	// needs approval. Nil: there are no tickets, and MCP clients are not asked for approval.
	States mcp.States

	Queue   Queue                  // nil: no call is queued
	Devices registry.SleepingStore // devices that are remembered; nil: none

	QueueTTL  time.Duration // the longest that calls may wait for sleeping devices; default registry.DefaultQueueTTL
	TaskAfter time.Duration // MCP clients get a task for calls that may take longer; default agent.DefaultCallTimeout
	Retention time.Duration // how long records of calls are stored; default registry.DefaultRetention

	Live Live // ends the requests of identities that end; nil: they continue

	Pod      string           // id of this pod, sent as X-Farhand-Pod with every response
	Version  string           // of the program, shown by /healthz and /openapi.json; default "dev"
	Console  string           // path of the console, to which / leads browsers; empty: there is none
	SignIn   SignIn           // nil: people sign in with keys and tokens only
	Agent    chat.Agent       // runs conversations; nil: no model is configured, and its routes say so
	Groups   *group.Service   // calls many devices in one call; nil: POST /api/calls says that there is none
	Builtins Builtins         // listed with the devices' tools; nil: none
	Refusals *auth.Refusals   // records rejected clients; default: in Log
	Audit    auth.Auditor     // writes the audit log; default: none
	Files    Files            // of results; nil: their routes do not exist
	Pairing  *pairing.Service // pairs devices; nil: its routes do not exist
	Wakes    Wakes            // keeps how devices are woken; nil: its routes do not exist

	// Ending is called for each session that a caller deletes, before anything of it is. An error is the response, and
	// nothing is deleted. May be nil.
	Ending func(ctx context.Context, key registry.Key) error

	// Ended is called for each session that a caller deleted, after its conversation was erased. It must continue after
	// ctx ends. May be nil.
	Ended func(ctx context.Context, key registry.Key)

	Operator Operator // what operators see; nil: its routes say that there is nothing

	Ready    func(ctx context.Context) error // nil error: this pod can serve; default: always
	Warnings func() []string                 // texts for the operator to act on; default: none
	Draining context.Context                 // ends when this pod begins to drain; default: never
	Closing  context.Context                 // ends when a new turn would not have time to finish; default: Draining
	Metrics  http.Handler                    // mounted at GET /metrics for admins; nil: not mounted
	Meter    Meter                           // counts every request; nil: not counted
	Device   http.Handler                    // devices' WebSockets, mounted at GET /ws/chat; nil: not mounted

	Pages Pages // served without a credential, and not part of the OpenAPI document; nil: not served

	DeviceLimits registry.DeviceLimits // shown to callers

	// DeviceMCP serves the WebSockets of devices that speak MCP, mounted at GET /ws/mcp; nil: not mounted.
	DeviceMCP http.Handler

	// DeviceNode serves the WebSockets of OpenClaw nodes, mounted at GET NodePath; nil: not mounted. If NodePath is /,
	// it serves the upgrades there, and other requests are served as without it.
	DeviceNode http.Handler
	NodePath   string

	Limits

	MaxCallTimeout time.Duration // the Invoker's maximum; default agent.DefaultMaxCallTimeout
	MaxTurn        time.Duration // the Agent's limit for a turn, without TurnWait; default 10 minutes
	TurnWait       time.Duration // the Agent's limit for waiting for the conversation; default 30 s
	StreamGrace    time.Duration // longest wait for a failure before a streamed turn begins; default 300 ms
	IgnoreDebug    bool          // hides model requests: debug in messages has no effect
	Log            *slog.Logger  // default: discard
	Tracer         trace.Tracer  // begins the traces of requests; default: off
	AccessLog      AccessLog     // which requests have a line in Log; default AccessLogSampled

	MaxServed int          // requests with a credential in flight; default DefaultMaxServed
	Sources   auth.Sources // derives the source of a request
}

func (cfg Config) withDefaults() (Config, error) {
	if cfg.Invoker == nil || cfg.Calls == nil || cfg.Directory == nil || cfg.Conversations == nil ||
		cfg.AuditLog == nil || cfg.Usage == nil || cfg.Approvals == nil || cfg.Credentials == nil ||
		cfg.Kicker == nil || cfg.Turns == nil || cfg.Policy == nil || cfg.Auth == nil || cfg.Origins == nil {
		return cfg, errors.New("api: a required field of Config is nil")
	}
	if cfg.Warnings == nil {
		cfg.Warnings = func() []string { return nil }
	}
	if cfg.History == nil {
		cfg.History = unbounded{}
	}
	if cfg.Ending == nil {
		cfg.Ending = func(context.Context, registry.Key) error { return nil }
	}
	if cfg.Ended == nil {
		cfg.Ended = func(context.Context, registry.Key) {}
	}
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) error { return nil }
	}
	cfg.Audit = cmp.Or[auth.Auditor](cfg.Audit, auth.NoAudit{})
	cfg.Draining = cmp.Or(cfg.Draining, context.Background())
	cfg.Closing = cmp.Or(cfg.Closing, cfg.Draining)
	cfg.Version = cmp.Or(cfg.Version, "dev")
	envconf.Default(&cfg.Limits)
	cfg.MaxCallTimeout = cmp.Or(cfg.MaxCallTimeout, agent.DefaultMaxCallTimeout)
	cfg.MaxTurn = cmp.Or(cfg.MaxTurn, 10*time.Minute)
	cfg.TurnWait = cmp.Or(cfg.TurnWait, 30*time.Second)
	cfg.StreamGrace = cmp.Or(cfg.StreamGrace, defaultGrace)
	cfg.MaxServed = cmp.Or(cfg.MaxServed, DefaultMaxServed)
	cfg.TaskAfter = cmp.Or(cfg.TaskAfter, agent.DefaultCallTimeout)
	cfg.QueueTTL = cmp.Or(cfg.QueueTTL, registry.DefaultQueueTTL)
	cfg.Retention = cmp.Or(cfg.Retention, registry.DefaultRetention)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.AccessLog = cmp.Or(cfg.AccessLog, AccessLogSampled)
	cfg.Refusals = cmp.Or(cfg.Refusals, auth.NewRefusals(auth.Sources{}, cfg.Log))
	return cfg, nil
}
