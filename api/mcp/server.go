// Package mcp serves the Model Context Protocol at /mcp: revision 2026-07-28, where every request stands alone, and the
// ones before it, whose clients begin with initialize. Nothing is kept between two requests of a client, so any pod
// answers any of them.
//
// It imports agent and registry. Start with server.go: a POST is read (message.go), checked against its headers
// (initialize.go), and answered by the method it names, each of which has a file of its own. Lists are read from the
// directory for every request, and calls go through agent.Invoker, as those of /api do. Decision 44 says why the
// server of the Go SDK is not used.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Invoker runs calls. *agent.Invoker is one.
type Invoker interface {
	Invoke(ctx context.Context, req agent.Request) (agent.Outcome, error)
	// Read waits until a text of n bytes may be read; done is called when it has been.
	Read(ctx context.Context, by share.Owner, n int) (done func(), err error)
}

// Directory answers which sessions there are. registry.Directory is one.
type Directory interface {
	Entry(ctx context.Context, key registry.Key) (registry.Entry, error)
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
	Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error)
}

// Gateway is what the rest of the API lends. Its methods are safe for concurrent use.
type Gateway interface {
	// LocalTools returns the gateway's own tools, in order of name.
	LocalTools() []registry.ToolSpec

	// Owns reports whether a name is one that a tool of the gateway's MCP servers can have, whether or not there is
	// such a tool now.
	Owns(name string) bool

	// Digest changes with the policy and with the gateway's own tools.
	Digest() string

	// Decide asks policy whether somebody may call a tool.
	Decide(by agent.Asker, t registry.ToolSpec, from policy.Source) *policy.Decision

	// Sessions and Session return the sessions of a scope, and one of them, as GET /api/sessions and
	// GET /api/sessions/{id} do. One that the caller may not see is unknown.
	Sessions(ctx context.Context, by agent.Asker, scope Scope) (json.RawMessage, error)
	Session(ctx context.Context, by agent.Asker, scope Scope, id string) (json.RawMessage, error)
}

// Config has what a Server needs; all of it is required.
type Config struct {
	Invoker   Invoker
	Directory Directory
	Gateway   Gateway
	Calls     CallLog
	Changes   Changer
	Cancels   Cancels
	Records   Records
	Approvals Approvals
	States    States        // nil: nobody is asked by way of a client
	TaskAfter time.Duration // a call that may take longer becomes a task, for clients that know tasks
	Retention time.Duration // how long the record of a call is kept
	Version   string        // of the program
}

// Server answers the messages of MCP's clients. It keeps nothing of a request that has been answered, and is safe for
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

// Exchange is one POST, and the way its answer takes.
type Exchange struct {
	Caller auth.Identity
	Scope  Scope
	Origin string // URL of the gateway without a path, as the client knows it; links in results begin with it
	Header http.Header
	Body   []byte
	Out    Out

	// TakeBody returns what is to be called when nothing needs Body any more; nil: nobody asks.
	TakeBody func() (release func())
}

// Out takes the answer to one POST.
type Out interface {
	// Write writes a whole answer. failure is the gateway's own error that it tells of, for the log; nil: none.
	Write(status int, body []byte, failure *registry.Error) error

	// NoteCall says which call the answer is about, before it is written. NoteFailure is for an answer that is not
	// written with Write.
	NoteCall(id string)
	NoteFailure(failure *registry.Error)

	// NameSession gives a client of an earlier revision a name that it repeats with each request.
	NameSession(name string)

	// ReservePage waits for the bytes that a page of a list takes while it is made. They are released with the request.
	ReservePage(ctx context.Context) error

	// Open begins an answer of events.
	Open() (*ssewriter.Stream, error)

	// Reserve waits for the bytes of a message that is written to a stream next. release is called when it has been.
	Reserve(ctx context.Context, s *ssewriter.Stream, n int) (release func(), err error)

	// Enter counts one more stream of the caller in, and returns how to count it out.
	Enter() (release func(), err error)

	// UntilDraining returns a context that also ends when the pod begins to stop.
	UntilDraining(ctx context.Context) (_ context.Context, stop func())

	// Ended reports whether the identity that sent the request has ended.
	Ended() bool
}

// request is a message that waits for an answer, or a notification.
type request struct {
	message
	*Exchange
	revision     string
	modern       bool             // of revision 2026-07-28 or later
	capabilities strictjson.Value // of the client; only if modern
	answer       *answer          // nil for what is not answered once
	args         registry.JSON    // of a call, until forgetBody

	wrongAnswers int    // of the client's user to the question of this call
	wrong        string // what is wrong with the last; empty: nothing
}

// asker returns who asks with the request. Behind a client of MCP is a model, unless the credentials say that it is a
// person's program. Every list and every call of a client is about the same asker, so that what is listed may be
// called.
func (r *request) asker() agent.Asker {
	return agent.Asker{Who: r.Caller, Model: !r.Caller.Person, Endpoint: agent.EndpointMCP, Waits: true}
}

// result is what a request is answered with.
type result struct {
	kind    string // resultType; empty: complete
	meta    []byte // of _meta, as JSON without the braces
	members []byte // of the result, as JSON without the braces
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

// method answers a request.
type method struct {
	serve  func(*Server, context.Context, *request) (result, error)
	modern bool // only from revision 2026-07-28 on
	legacy bool // only before
}

// methods are all that are served.
func methods(name string) (m method, ok bool) {
	switch name {
	case "initialize":
		return method{serve: (*Server).initialize, legacy: true}, true
	case "ping":
		return method{serve: (*Server).ping, legacy: true}, true
	case "server/discover":
		return method{serve: (*Server).discover, modern: true}, true
	case "tools/list":
		return method{serve: (*Server).listTools}, true
	case methodCallTool:
		return method{serve: (*Server).callTool}, true
	case "resources/list":
		return method{serve: (*Server).listResources}, true
	case "resources/templates/list":
		return method{serve: (*Server).listTemplates}, true
	case methodReadResource:
		return method{serve: (*Server).readResource}, true
	case methodGetTask:
		return method{serve: (*Server).getTask, modern: true}, true
	case methodUpdateTask:
		return method{serve: (*Server).updateTask, modern: true}, true
	case methodCancelTask:
		return method{serve: (*Server).cancelTask, modern: true}, true
	default:
		return method{}, false
	}
}

// readTimeout is how long the store has for a list or a resource.
const readTimeout = 10 * time.Second

// Serve answers one POST. An error means that nothing was written and that the caller has to.
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
	if r.method == methodListen && r.modern {
		return s.listen(ctx, r)
	}
	m, ok := methods(r.method)
	if !ok || m.modern && !r.modern || m.legacy && r.modern {
		return r.fail(methodNotFound(r.method))
	}
	ctx, a := r.begin(ctx)
	r.answer = a
	res, err := m.serve(s, ctx, r)
	return a.finish(s, res, err)
}

// longBody is the length from which bodies are parsed one after another.
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

// fail answers a request with an error.
func (r *request) fail(err error) error {
	e := rpcErrorOf(err)
	return r.Out.Write(e.status(r.modern, r.Scope), appendError(nil, r.id, e), e.cause)
}

// appendResult appends the answer to a request.
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
	return append(append(b, res.members...), "}}\n"...)
}
