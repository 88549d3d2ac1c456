package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

// Why Run returns although its context has not ended: coming back would not help.
var (
	// ErrEnded: the gateway ended the session for good.
	ErrEnded = errors.New("client: the gateway ended the session")
	// ErrRefused: the gateway does not accept the token or the parameters. The error is a *RefusedError.
	ErrRefused = errors.New("client: the gateway refused the connection")
	// ErrServer: the MCP server of RunMCP ended, or does not answer as it must.
	ErrServer = errors.New("client: the MCP server ended, or does not speak MCP as it must")
	// ErrUnpaired: the client has no token, and the gateway pairs devices: use Pair.
	ErrUnpaired = errors.New("client: the device has no token; Pair gets it a credential")
)

// Another connection has the session. State.Err is one of these, and the client waits longer and longer before it comes
// back.
var (
	// ErrReplaced: a newer connection took over the session.
	ErrReplaced = errors.New("client: a newer connection took over the session")
	// ErrHeld: another device is connected, and this one cannot prove to be the same.
	ErrHeld = errors.New("client: another device has the session and is connected")
)

// RefusedError is a handshake the gateway answered with an HTTP error.
type RefusedError struct {
	Status int    // of the response
	Code   string // the gateway's name for the reason; empty if the answer is not from a gateway
	Detail string // for people

	retryAfter time.Duration
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%v: HTTP status %d", ErrRefused, e.Status)
	}
	return fmt.Sprintf("%v: HTTP status %d, %s: %s", ErrRefused, e.Status, e.Code, e.Detail)
}

// Is makes errors.Is(err, ErrRefused) hold.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// final returns the error Run ends with after err, nil if it should connect again.
func final(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		switch refused.Status {
		case 400, 401, 403: // the same request would be refused again
			return refused
		}
		return nil
	}
	var closed *websocket.CloseError
	if !errors.As(err, &closed) {
		return nil
	}
	if closed.Code == websocket.CloseProtocolError && closed.Text == "mcp_failed" {
		return ErrServer
	}
	if closed.Code != websocket.CloseNormalClosure {
		return nil
	}
	if rival(err) != nil {
		return nil
	}
	if closed.Text == "pairing_required" {
		return ErrUnpaired
	}
	return fmt.Errorf("%w: %s", ErrEnded, closed.Text)
}

// rival returns ErrReplaced or ErrHeld if err means that another connection has the session, else nil.
func rival(err error) error {
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseNormalClosure {
		return nil
	}
	switch closed.Text {
	case "session_replaced":
		return ErrReplaced
	case "session_owner_mismatch":
		return ErrHeld
	default:
		return nil
	}
}
