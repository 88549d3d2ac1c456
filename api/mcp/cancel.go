package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/farhand/farhand/registry"
)

// headerSession carries the name that initialize gave a client of a revision before 2026-07-28.
const headerSession = "Mcp-Session-Id"

// errCancelled is the cause of a context whose request its client has cancelled with a message. Such a request is not
// answered.
var errCancelled = errors.New("cancelled by the client")

// maxSession bounds that name, in bytes, as clients may send any.
const maxSession = 128

// Cancels carries cancellations to whatever pod runs a request. *routing.Turns is one.
type Cancels interface {
	// Abort ends what runs under a key, on any pod. A message to another pod can be lost.
	Abort(ctx context.Context, key registry.Key) error

	// Serve adds a function that ends what runs under a key on this pod, and reports whether something did.
	Serve(abort func(registry.Key) bool)
}

// requestKey names a request of a client of an earlier revision on all pods. Only the identity that sent the request
// can name it. ok is false if the client has no name: then its ids may be those of another client.
func (r *request) requestKey(id json.RawMessage) (key registry.Key, ok bool) {
	session := r.Header.Get(headerSession)
	if r.modern || session == "" || len(session) > maxSession {
		return registry.Key{}, false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %s",
		r.Caller.Tenant, r.Caller.User, r.Caller.Credential, session, id))
	return registry.Key{Tenant: r.Caller.Tenant, Session: "mcp~" + hex.EncodeToString(sum[:16])}, true
}

// running are the calls of this pod that a message of their client can cancel. The zero value is ready for use. It is
// safe for concurrent use.
type running struct {
	mu    sync.Mutex
	calls map[registry.Key]context.CancelCauseFunc
}

// enter returns the context of a call. From revision 2026-07-28 on a client cancels by closing the stream of the
// answer, which ends ctx. Before it, that a stream ends says nothing: the call goes on until the client cancels it with
// a message, which may reach any pod, or its identity ends. A call with a long body, for which the pod reserves memory,
// ends with its connection also then: a caller that is gone holds nothing.
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
		return nil, nil, invalidRequest("A request with this id is running. Give each request an id of its own.")
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

// cancel ends the call of a request, and reports whether it runs here.
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

// hear acts on a notification. Those that mean nothing here are ignored, as JSON-RPC demands.
func (s *Server) hear(ctx context.Context, r *request) {
	if r.method != "notifications/cancelled" {
		return
	}
	id := r.params.get("requestId")
	if id.IsZero() || !isID(id.Raw()) {
		return
	}
	if key, ok := r.requestKey(id.Raw()); ok {
		_ = s.cfg.Cancels.Abort(ctx, key) // nobody waits for an answer: the call ends by its deadline
	}
}
