package ws

import (
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

// Close is one entry of the catalogue of reasons for which the server ends a connection. It is an error: a handler
// that returns it ends its connection that way.
//
// The number alone tells a device what to do: after 1000 it must not come back by itself, after every other code it
// should, with growing, jittered delays. The rule is older than this server: ClawSeed's client reconnects after every
// code except 1000.
type Close uint8

// The catalogue.
const (
	closeNone           Close = iota
	CloseReplaced             // a newer connection claimed the session
	CloseEnded                // an operator ended the session, or its credentials were revoked
	CloseOwnerMismatch        // connect named another session than the URL, or one that the device may not have
	ClosePairing              // the device has no credential: it was given a code, by which it is paired
	CloseRestart              // this pod is stopping; another one will answer
	CloseUnavailable          // the session could not be claimed: the store is away
	CloseSlow                 // the device does not read its frames
	CloseInvalidUTF8          // a text frame was not UTF-8
	CloseRate                 // far too many frames
	CloseTooBig               // a message over the limit; over twice the limit the library closes, with no reason
	CloseMessageTimeout       // a message was begun and not finished in time
	CloseCrowded              // the pod has too many bytes of unfinished messages, or no time for a long one
	CloseMCP                  // a device that speaks MCP did not answer initialize or tools/list as it must
	CloseInternal             // a fault of the server, which is in its log
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
	CloseInternal:       {websocket.CloseInternalServerErr, "internal_error", true},
	closeGone:           {websocket.CloseAbnormalClosure, "", true},
}

// Code returns the number of the close frame.
func (c Close) Code() int { return catalogue[c].code }

// Reason returns the text of the close frame.
func (c Close) Reason() string { return catalogue[c].reason }

// Reconnect reports whether the device should come back by itself.
func (c Close) Reconnect() bool { return catalogue[c].reconnect }

// Error implements error.
func (c Close) Error() string { return fmt.Sprintf("closed with %d %s", c.Code(), c.Reason()) }

// payload returns the body of the close frame.
func (c Close) payload() []byte { return websocket.FormatCloseMessage(c.Code(), c.Reason()) }

// closeFor maps the registry's causes to the catalogue.
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
