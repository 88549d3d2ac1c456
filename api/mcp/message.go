package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// maxDepth allows arguments of the maximum depth inside a message and its params.
	maxDepth = agent.MaxArgsDepth + 2

	// maxID is the maximum length of a request's id, in bytes. Every message about the request repeats it.
	maxID = 256
)

// message is one JSON-RPC message of a client. Its fields are parts of the body.
type message struct {
	id     json.RawMessage // a string or a number, as sent; nil: a notification, or an answer
	method string          // empty: an answer
	params fields
	meta   fields // params._meta
}

func (m *message) isRequest() bool { return m.id != nil && m.method != "" }

// fields are the members of an object. They are few, so get searches them one by one.
type fields []strictjson.Member

func (f fields) get(name string) strictjson.Value {
	for i := range f {
		if string(f[i].Name) == name {
			return f[i].Checked()
		}
	}
	return strictjson.Value{}
}

// text returns a member that is a string.
func (f fields) text(name string) (s string, ok bool) {
	v := f.get(name)
	if !v.IsString() {
		return "", false
	}
	return strictjson.Text(v.Raw()), true
}

// mustText is text for a member that must be there.
func (f fields) mustText(name string) (string, error) {
	s, ok := f.text(name)
	if !ok {
		return "", invalidParams("The field %q must be a string.", name)
	}
	return s, nil
}

// parseMessage parses a body. On an error, the id is set if it could be read, because the answer repeats it.
func parseMessage(body []byte) (message, error) {
	var m message
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0:
		return m, invalidRequest("The body is empty. Send one JSON-RPC message.")
	case trimmed[0] == '[':
		return m, invalidRequest("Batches are not supported. Send one JSON-RPC message in each POST.")
	case strictjson.Depth(body) > maxDepth:
		return m, invalidRequest("The body nests deeper than %d levels.", maxDepth)
	}
	members, err := strictjson.Members(make(fields, 0, 4), body, math.MaxInt)
	if err != nil {
		return m, badJSON(body, err)
	}
	return m, m.read(members)
}

func badJSON(body []byte, err error) error {
	switch p := strictjson.Explain(err); p.Fault {
	case strictjson.NotUTF8:
		return invalidRequest("The body is not valid UTF-8.")
	case strictjson.NameTwice:
		return invalidRequest("The field %.120q appears twice.", p.Path)
	default:
		if json.Valid(body) {
			return invalidRequest("The body must be a JSON object.")
		}
		return &rpcError{code: codeParse, message: "The body is not one valid JSON value."}
	}
}

func (m *message) read(members fields) error {
	if id := members.get("id"); !id.IsZero() {
		if !isID(id.Raw()) {
			return invalidRequest("The id must be a string or a whole number, of at most %d bytes.", maxID)
		}
		m.id = id.Raw()
	}
	if version, _ := members.text("jsonrpc"); version != "2.0" {
		return invalidRequest("The field \"jsonrpc\" must be \"2.0\".")
	}
	method := members.get("method")
	if method.IsZero() {
		if members.get("result").IsZero() && members.get("error").IsZero() {
			return invalidRequest("The field \"method\" is missing.")
		}
		m.id = nil // an answer: the gateway has sent no request
		return nil
	}
	if !method.IsString() || method.Len() <= len(`""`) {
		return invalidRequest("The field \"method\" must be a string.")
	}
	m.method = strictjson.Text(method.Raw())
	return m.readParams(members.get("params"))
}

func (m *message) readParams(params strictjson.Value) (err error) {
	if m.params, err = membersOf(params); err != nil {
		return invalidParams("The field \"params\" must be a JSON object.")
	}
	if m.meta, err = membersOf(m.params.get("_meta")); err != nil {
		return invalidParams("The field \"_meta\" must be a JSON object.")
	}
	return nil
}

// membersOf returns the members of an object, or none if it is missing.
func membersOf(v strictjson.Value) (fields, error) {
	if v.IsZero() {
		return nil, nil
	}
	return strictjson.Members(nil, v.Raw(), math.MaxInt)
}

// isID reports whether a value can be the id of a request. null cannot.
func isID(v json.RawMessage) bool {
	if len(v) > maxID {
		return false
	}
	if v[0] == '"' {
		return true
	}
	return (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && !bytes.ContainsAny(v, ".eE")
}

// headerSession carries the session name that initialize gives a client of a revision before 2026-07-28.
const headerSession = "Mcp-Session-Id"

// errCancelled is the cause of a context that the client has cancelled with a message. Such a request gets no answer.
var errCancelled = errors.New("cancelled by the client")

// maxSession is the maximum length of that name, in bytes, because clients may send any.
const maxSession = 128

// Cancels forwards cancellations to the pod that runs a request. *routing.Turns implements it.
type Cancels interface {
	// Abort ends the work under a key, on any pod. It is best effort: a message to another pod can be lost.
	Abort(ctx context.Context, key registry.Key) error

	// Serve adds a function that ends the work under a key on this pod, and reports whether there was any.
	Serve(abort func(registry.Key) bool)
}

// requestKey names a request of a client of an earlier revision, on all pods. Only the identity that sent the request
// can build the name. ok is false if the client has no session name: then another client may use the same ids.
func (r *request) requestKey(id json.RawMessage) (key registry.Key, ok bool) {
	session := r.Header.Get(headerSession)
	if r.modern || session == "" || len(session) > maxSession {
		return registry.Key{}, false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %s",
		r.Caller.Tenant, r.Caller.User, r.Caller.Credential, session, id))
	return registry.Key{Tenant: r.Caller.Tenant, Session: "mcp~" + hex.EncodeToString(sum[:16])}, true
}

// running holds the calls of this pod that a message of their client can cancel. The zero value is ready to use. It is
// safe for concurrent use.
type running struct {
	mu    sync.Mutex
	calls map[registry.Key]context.CancelCauseFunc
}

// enter returns the context of a call. From revision 2026-07-28 on, a client cancels by closing the stream of the
// answer, which ends ctx. In earlier revisions, the end of a stream has no meaning: the call continues until the client
// cancels it with a message, which may reach any pod, or until its identity ends. A call with a long body still ends
// with its connection, because the pod reserves memory for it.
func (s *running) enter(ctx context.Context, r *request, long bool) (_ context.Context, leave func(), err error) {
	if r.modern {
		return ctx, func() {}, nil
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(outer))
	forget := context.AfterFunc(outer, func() {
		if long || r.Out.Ended() {
			cancel(context.Cause(outer))
		}
	})
	end := func() {
		forget()
		cancel(nil)
	}
	key, ok := r.requestKey(r.id)
	if !ok {
		return ctx, end, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[key] != nil {
		end()
		return nil, nil, invalidRequest("A request with this id is already running. Use a different id for each " +
			"request.")
	}
	if s.calls == nil {
		s.calls = make(map[registry.Key]context.CancelCauseFunc)
	}
	s.calls[key] = cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.calls, key)
		s.mu.Unlock()
		end()
	}, nil
}

func (s *running) cancel(key registry.Key) bool {
	s.mu.Lock()
	cancel := s.calls[key]
	s.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel(errCancelled)
	return true
}

// hear handles a notification. Unknown ones are ignored, as JSON-RPC demands.
func (s *Server) hear(ctx context.Context, r *request) {
	if r.method != "notifications/cancelled" {
		return
	}
	id := r.params.get("requestId")
	if id.IsZero() || !isID(id.Raw()) {
		return
	}
	if key, ok := r.requestKey(id.Raw()); ok {
		_ = s.cfg.Cancels.Abort(ctx, key) // best effort: if it fails, the call ends by its deadline
	}
}

// session reads the session of the scope. If it is away, it has no tools. If the caller may not see it, it is unknown.
func (s *Server) session(ctx context.Context, r *request) (registry.Entry, error) {
	key := registry.Key{Tenant: r.Caller.Tenant, Session: r.Scope.Session}
	if key.Validate() != nil { // an impossible id is unknown; it is not sent to the store
		return registry.Entry{}, registry.UnknownSession()
	}
	e, err := s.cfg.Directory.Entry(ctx, key)
	away := errors.Is(err, registry.CodeNotConnected)
	if (err == nil || away) && !r.Caller.Sees(e.Session.UserID) {
		return registry.Entry{}, registry.UnknownSession()
	}
	if away {
		e.Tools, err = nil, nil
	}
	return e, err
}
