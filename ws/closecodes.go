package ws

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Close is a reason for which the server ends a connection. It is an error: a handler that returns it ends its
// connection for that reason.
//
// The close code alone determines what a device does. After 1000 it must not reconnect by itself. After every other
// code it should reconnect with growing, jittered delays. ClawSeed's client set this rule: it reconnects after every
// code except 1000.
type Close uint8

// The catalogue.
const (
	closeNone           Close = iota
	CloseReplaced             // a newer connection claimed the session
	CloseEnded                // an operator ended the session, or its credentials were revoked
	CloseOwnerMismatch        // connect named another session than the URL, or one the device may not use
	ClosePairing              // the device has no credential; it was sent a pairing code
	CloseRestart              // this pod is stopping; another pod accepts connections
	CloseUnavailable          // the session could not be claimed: the store is unavailable
	CloseSlow                 // the device does not read its frames
	CloseInvalidUTF8          // a text frame was not UTF-8
	CloseRate                 // far too many frames
	CloseTooBig               // a message exceeds the limit; over twice the limit the library closes, with no reason
	CloseMessageTimeout       // a message was not finished in time
	CloseCrowded              // the pod holds too many unfinished bytes, or is too busy to decode a long message
	CloseMCP                  // an MCP device did not answer initialize or tools/list correctly
	CloseHandshake            // a client did not become a node; its close frame says why
	CloseInternal             // an internal error, which is logged
	closeGone                 // the peer is gone: no close frame is sent
)

type closeEntry struct {
	code      int
	reason    string // fixed, at most 123 bytes, for machines; details are logged
	reconnect bool
}

// catalogue is read only.
var catalogue = [...]closeEntry{
	CloseReplaced:       {websocket.CloseNormalClosure, "session_replaced", false},
	CloseEnded:          {websocket.CloseNormalClosure, "session_ended", false},
	CloseOwnerMismatch:  {websocket.CloseNormalClosure, "session_owner_mismatch", false},
	ClosePairing:        {websocket.CloseNormalClosure, "pairing_required", false},
	CloseRestart:        {websocket.CloseServiceRestart, "server_restart", true},
	CloseUnavailable:    {websocket.CloseTryAgainLater, "store_unavailable", true},
	CloseSlow:           {websocket.CloseTryAgainLater, "slow_consumer", true},
	CloseInvalidUTF8:    {websocket.CloseInvalidFramePayloadData, "invalid_utf8", true},
	CloseRate:           {websocket.ClosePolicyViolation, "rate_limited", true},
	CloseTooBig:         {websocket.CloseMessageTooBig, "message_too_big", true},
	CloseMessageTimeout: {websocket.ClosePolicyViolation, "message_timeout", true},
	CloseCrowded:        {websocket.CloseTryAgainLater, "too_much_unfinished", true},
	CloseMCP:            {websocket.CloseProtocolError, "mcp_failed", true},
	CloseHandshake:      {websocket.ClosePolicyViolation, "node_refused", true},
	CloseInternal:       {websocket.CloseInternalServerErr, "internal_error", true},
	closeGone:           {websocket.CloseAbnormalClosure, "", true},
}

// Code returns the code of the close frame.
func (c Close) Code() int { return catalogue[c].code }

// Reason returns the text of the close frame.
func (c Close) Reason() string { return catalogue[c].reason }

// Reconnect reports whether the device should reconnect by itself.
func (c Close) Reconnect() bool { return catalogue[c].reconnect }

// Error implements error.
func (c Close) Error() string { return fmt.Sprintf("closed with %d %s", c.Code(), c.Reason()) }

func (c Close) payload() []byte { return websocket.FormatCloseMessage(c.Code(), c.Reason()) }

func closeFor(cause routing.CloseCause) Close {
	switch cause {
	case routing.CloseReplaced:
		return CloseReplaced
	case routing.CloseKicked:
		return CloseEnded
	case routing.CloseDraining:
		return CloseRestart
	default:
		return CloseInternal
	}
}

// refuse rejects a request before the upgrade with a problem document, as the HTTP API does. It does not send the
// error's cause.
func (s *Server) refuse(w http.ResponseWriter, e *registry.Error) {
	w.Header().Del("Sec-Websocket-Protocol")
	p := auth.ProblemOf(e)
	cmp.Or(s.counters.refused[p.Code], s.counters.refused[registry.CodeInternal]).Add(1)
	if err := auth.WriteProblem(w, p); err != nil {
		s.log.Debug("refusal not written", "error", err) // the peer may have hung up
	}
}

// refuseHandshake rejects a request that is not a proper WebSocket handshake. The upgrader calls it.
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
	s.refuse(w, registry.Errorf(code, "This address accepts only WebSocket connections: %s.",
		strings.TrimPrefix(reason.Error(), "websocket: ")))
}

func draining() *registry.Error {
	e := registry.Errorf(registry.CodeDraining, "This pod is stopping. Reconnect to reach another pod.")
	e.RetryAfter = time.Second
	return e
}
