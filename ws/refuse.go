package ws

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// refuse answers a request that does not become a connection with a problem document, as the HTTP API does. The error's
// cause is not sent.
func (s *Server) refuse(w http.ResponseWriter, e *registry.Error) {
	w.Header().Del("Sec-Websocket-Protocol")
	p := auth.ProblemOf(e)
	s.counters.connectionRefused(p.Code)
	if err := auth.WriteProblem(w, p); err != nil {
		s.log.Debug("refusal not written", "error", err) // a peer that hung up does not read why
	}
}

// refuseHandshake answers a request that is not a proper WebSocket handshake. The upgrader calls it.
func (s *Server) refuseHandshake(w http.ResponseWriter, r *http.Request, status int, reason error) {
	var handshake websocket.HandshakeError
	if status >= http.StatusInternalServerError || !errors.As(reason, &handshake) {
		s.refuse(w, registry.AsError(reason))
		return
	}
	code := registry.CodeInvalidRequest
	switch status {
	case http.StatusMethodNotAllowed:
		code = registry.CodeMethodNotAllowed
		w.Header().Set("Allow", http.MethodGet)
	case http.StatusForbidden:
		code = registry.CodeForbidden
	}
	w.Header().Set("Sec-Websocket-Version", "13")
	s.cfg.Refusals.Note(r, auth.RefusedHandshake, reason)
	s.refuse(w, registry.Errorf(code, "This address speaks WebSocket: %s.",
		strings.TrimPrefix(reason.Error(), "websocket: ")))
}

func draining() *registry.Error {
	e := registry.Errorf(registry.CodeDraining, "This pod is stopping. Connect again; another one will answer.")
	e.RetryAfter = time.Second
	return e
}
