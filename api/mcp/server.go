// Package mcp serves the Model Context Protocol at /mcp: revision 2026-07-28, whose requests are independent of each
// other, and earlier revisions, whose clients begin with initialize. No state is kept between two requests of a client,
// so any pod answers any of them.
//
// Start with server.go: a POST is parsed (message.go), checked against its headers (initialize.go), and answered by its
// method. Each method has a file of its own. Lists are read from the directory for every request, and calls go through
// agent.Invoker, as for /api. Decision 44 says why the server of the Go SDK is not used.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// Invoker runs calls. *agent.Invoker implements it.
type Invoker interface {
	Invoke(ctx context.Context, req agent.Request) (agent.Outcome, error)
	// Read waits until a text of n bytes may be parsed. done must be called afterwards.
	Read(ctx context.Context, by share.Owner, n int) (done func(), err error)
}

// Gateway is the part of the API that this package uses. Its methods are safe for concurrent use.
type Gateway interface {
	// LocalTools returns the gateway's own tools, in order of name.
	LocalTools() []registry.ToolSpec

	// Owns reports whether a tool of the gateway's MCP servers can have this name, whether or not there is such a tool
	// now.
	Owns(name string) bool

	// Digest changes with the policy and with the gateway's own tools.
	Digest() string

	// Decide returns policy's decision on a call of a tool.
	Decide(by agent.Asker, t registry.ToolSpec, from policy.Source) *policy.Decision

	// Sessions and Session return the sessions of a scope, and one of them, like GET /api/sessions and GET
	// /api/sessions/{id}. A session that the caller may not see is unknown.
	Sessions(ctx context.Context, by agent.Asker, scope Scope) (json.RawMessage, error)
	Session(ctx context.Context, by agent.Asker, scope Scope, id string) (json.RawMessage, error)

	// Sleeping calls row for the known devices of a target that are not connected, beginning after the first skip,
	// until row returns false. It returns how many to skip for the next of them; zero: there is none.
	Sleeping(ctx context.Context, who auth.Identity, target registry.Target, skip int,
		row func(registry.KnownDevice) bool) (next int, err error)

	// Follow starts to follow changes. It misses none after it returns. leave must be called at the end.
	Follow(ctx context.Context, who auth.Identity, scope Scope) (c Changes, leave func(), err error)
}

// Calls reads and cancels calls that have a record, and reads their reports. For a call that the tenant may not see,
// Get and Cancel fail with registry.CodeCallNotFound. *routing.Calls implements it.
type Calls interface {
	Events(ctx context.Context, tenant, callID, after string) ([]registry.CallEvent, registry.Record, error)
	Get(ctx context.Context, tenant, callID string) (registry.Record, error)
	Cancel(ctx context.Context, tenant, callID string) (registry.Record, error)
}

// Config configures a Server. All fields are required, unless noted.
type Config struct {
	Invoker   Invoker
	Directory registry.Directory
	Gateway   Gateway
	Calls     Calls
	Cancels   Cancels
	Approvals Approvals
	States    States                   // nil: clients are not asked for approval
	TaskAfter time.Duration            // clients that know tasks get one for a call that may take longer
	Retention time.Duration            // how long the record of a call is stored
	Version   string                   // of the program
	Tracer    trace.Tracer             // begins the traces of calls that name their own in _meta
	MayTrace  func(tenant string) bool // whether another trace that a caller marked as sampled may be recorded
}

// Server answers the messages of MCP clients. It keeps no state of a request after its answer, and is safe for
// concurrent use.
type Server struct {
	cfg     Config
	info    []byte // serverInfo, as JSON
	running running
}

// New returns a Server.
func New(cfg Config) *Server {
	info := strictjson.AppendString([]byte(`{"name":"farhand","title":"Farhand","version":`), cfg.Version)
	s := &Server{cfg: cfg, info: append(info, '}')}
	cfg.Cancels.Serve(s.running.cancel)
	return s
}

// Exchange is one POST and its answer.
type Exchange struct {
	Caller auth.Identity
	Scope  Scope
	Origin string // URL of the gateway without a path, as the client knows it; prefix of links in results

	// Queue is how long calls that name a session may wait for its device. Lists then have the tools of sleeping
	// devices. Zero: calls wait only if they say so themselves.
	Queue time.Duration

	Header http.Header
	Body   []byte
	Out    Out

	// TakeBody returns a function to call when Body is no longer needed; nil: there is nothing to release.
	TakeBody func() (release func())
}

// Out takes the answer to one POST.
type Out interface {
	// Write writes a whole answer. failure is the gateway's own error in it, for the log; nil: none.
	Write(status int, body []byte, failure *registry.Error) error

	// NoteCall sets the id of the call that the answer is about, before it is written. NoteFailure is for an answer
	// that is not written with Write.
	NoteCall(id string)
	NoteFailure(failure *registry.Error)

	// NameSession gives a client of an earlier revision a session name, which it repeats with each request.
	NameSession(name string)

	// ReservePage waits for the bytes that building a page of a list takes. They are released when the request ends.
	ReservePage(ctx context.Context) error

	// Open begins an answer as a stream of events.
	Open() (*ssewriter.Stream, error)

	// Reserve waits for the bytes of the next message of a stream. release must be called after the write.
	Reserve(ctx context.Context, s *ssewriter.Stream, n int) (release func(), err error)

	// Enter counts one more stream of the caller in, and returns a function that counts it out.
	Enter() (release func(), err error)

	// UntilDraining returns a context that also ends when the pod begins to drain.
	UntilDraining(ctx context.Context) (_ context.Context, stop func())

	// Ended reports whether the identity that sent the request has ended.
	Ended() bool
}

type request struct {
	message
	*Exchange
	modern       bool             // of revision 2026-07-28 or later
	capabilities strictjson.Value // of the client; only if modern
	answer       *answer          // nil for notifications
	args         registry.JSON    // of a call, until forgetBody

	wrongAnswers int    // by the client's user, to this call's question
	wrong        string // why the last answer was invalid; empty: it was valid
}

// asker returns the identity that a request acts for. Behind an MCP client is a model, unless the credentials belong to
// a person's program. Lists and calls of a client use the same asker, so that every listed tool may be called.
func (r *request) asker() agent.Asker {
	return agent.Asker{Who: r.Caller, Model: !r.Caller.Person, Endpoint: agent.EndpointMCP, Waits: true}
}

type result struct {
	kind    string // resultType; empty: complete
	meta    []byte // of _meta, as JSON without the braces
	members []byte // of the result, as JSON without the braces
	private bool   // the client may cache it, but must not share it
}

// encode returns the members of an object, as JSON without the braces. Texts are as strictjson.AppendString writes
// them. It panics if v cannot be encoded, which is a bug.
//
// Errors, tasks and initialize are appended by hand, because their answers took 11 to 23 % more CPU with encode
// (BenchmarkOtherAnswers). So is JSON of devices, such as schemas and results: encode would check it again, and change
// its white space.
func encode(v any) []byte {
	text, err := strictjson.Encode(v)
	if err != nil {
		panic(fmt.Errorf("api/mcp: encode %T: %w", v, err))
	}
	return text[len("{") : len(text)-len("}")]
}

// Names of the methods that other files refer to.
const (
	methodCallTool     = "tools/call"
	methodReadResource = "resources/read"
	methodListen       = "subscriptions/listen"
	methodGetTask      = "tasks/get"
	methodUpdateTask   = "tasks/update"
	methodCancelTask   = "tasks/cancel"
)

type method struct {
	serve  func(*Server, context.Context, *request) (result, error)
	modern bool // only from revision 2026-07-28 on
	legacy bool // only before
	reads  bool // within readTimeout
	page   bool // reserves the bytes of a page
}

func methods(name string) (m method, ok bool) {
	switch name {
	case "initialize":
		m = method{serve: (*Server).initialize, legacy: true}
	case "ping":
		m = method{serve: (*Server).ping, legacy: true}
	case "server/discover":
		m = method{serve: (*Server).discover, modern: true}
	case "tools/list":
		m = method{serve: (*Server).listTools, reads: true, page: true}
	case methodCallTool:
		m = method{serve: (*Server).callTool}
	case "resources/list":
		m = method{serve: (*Server).listResources, reads: true, page: true}
	case "resources/templates/list":
		m = method{serve: (*Server).listTemplates}
	case methodReadResource:
		m = method{serve: (*Server).readResource, reads: true, page: true}
	case methodListen:
		m = method{serve: (*Server).listen, modern: true}
	case methodGetTask:
		m = method{serve: (*Server).getTask, modern: true, reads: true}
	case methodUpdateTask:
		m = method{serve: (*Server).updateTask, modern: true, reads: true}
	case methodCancelTask:
		m = method{serve: (*Server).cancelTask, modern: true, reads: true}
	}
	return m, m.serve != nil
}

// readTimeout bounds the store's time for a list or a resource.
const readTimeout = 10 * time.Second

// Serve answers one POST. If it returns an error, nothing was written, and its caller must answer.
func (s *Server) Serve(ctx context.Context, x *Exchange) error {
	r := &request{Exchange: x}
	var err error
	if r.message, err = s.parse(ctx, x); err == nil {
		err = r.checkRevision(x.Header)
	}
	switch {
	case err != nil:
		return r.fail(err)
	case !r.isRequest():
		s.hear(ctx, r)
		return x.Out.Write(http.StatusAccepted, nil, nil)
	}
	m, ok := methods(r.method)
	if !ok || m.modern && !r.modern || m.legacy && r.modern {
		return r.fail(methodNotFound(r.method))
	}
	ctx, r.answer = r.begin(ctx)
	res, err := s.run(ctx, r, m)
	return r.answer.finish(s, res, err)
}

func (s *Server) run(ctx context.Context, r *request, m method) (result, error) {
	if m.page {
		if err := r.Out.ReservePage(ctx); err != nil {
			return result{}, err
		}
	}
	if m.reads {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readTimeout)
		defer cancel()
	}
	return m.serve(s, ctx, r)
}

// longBody is the length from which bodies are parsed one at a time.
const longBody = 16 << 10

func (s *Server) parse(ctx context.Context, x *Exchange) (message, error) {
	body := x.Body
	if len(body) > longBody {
		done, err := s.cfg.Invoker.Read(ctx, x.Caller.Owner(), len(body))
		if err != nil {
			return message{}, err
		}
		defer done()
	}
	return parseMessage(body)
}

func (r *request) fail(err error) error {
	e := rpcErrorOf(err)
	return r.Out.Write(e.status(r.modern, r.Scope), appendError(nil, r.id, e), e.cause)
}

func (s *Server) appendResult(b []byte, r *request, res result) []byte {
	b = append(append(append(b, `{"jsonrpc":"2.0","id":`...), r.id...), `,"result":{`...)
	start := len(b)
	if r.modern {
		b = strictjson.AppendString(append(b, `"resultType":`...), cmp.Or(res.kind, "complete"))
		b = append(append(b, `,"_meta":{"`+metaServer+`":`...), s.info...)
		if len(res.meta) > 0 {
			b = append(append(b, ','), res.meta...)
		}
		b = append(b, '}')
	} else if len(res.meta) > 0 {
		b = append(append(append(b, `"_meta":{`...), res.meta...), '}')
	}
	if len(b) > start && len(res.members) > 0 {
		b = append(b, ',')
	}
	b = append(b, res.members...)
	if r.modern && res.private {
		b = append(b, `,"ttlMs":`+ttl+`,"cacheScope":"private"`...)
	}
	return append(b, "}}\n"...)
}
