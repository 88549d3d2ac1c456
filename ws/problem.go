package ws

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
)

// problem is the body of a refusal (RFC 9457), in the shape the HTTP door uses.
type problem struct {
	Type   string        `json:"type"`
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Detail string        `json:"detail"`
	Code   registry.Code `json:"code"`
}

// refuse answers a request that does not become a connection. The error's cause stays here.
func refuse(w http.ResponseWriter, e *registry.Error) {
	status := statusOf(e.Code)
	body, err := json.Marshal(problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Message, Code: e.Code,
	})
	if err != nil { // cannot happen: five plain fields
		status, body = http.StatusInternalServerError, nil
	}
	h := w.Header()
	h.Del("Sec-Websocket-Protocol")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever hung up does not read why
}

// refuseHandshake answers a request that is not a proper WebSocket handshake. The upgrader calls it.
func refuseHandshake(w http.ResponseWriter, _ *http.Request, status int, reason error) {
	var handshake websocket.HandshakeError
	if status >= http.StatusInternalServerError || !errors.As(reason, &handshake) {
		refuse(w, registry.AsError(reason))
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
	refuse(w, registry.Errorf(code, "This address speaks WebSocket: %s.",
		strings.TrimPrefix(reason.Error(), "websocket: ")))
}

// statusOf covers the codes a handshake can end with.
func statusOf(code registry.Code) int {
	switch code {
	case registry.CodeInvalidRequest:
		return http.StatusBadRequest
	case registry.CodeUnauthenticated:
		return http.StatusUnauthorized
	case registry.CodeForbidden:
		return http.StatusForbidden
	case registry.CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case registry.CodeRateLimited:
		return http.StatusTooManyRequests
	case registry.CodeDraining, registry.CodeStoreUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func draining() *registry.Error {
	e := registry.Errorf(registry.CodeDraining, "This pod is stopping. Connect again; another one will answer.")
	e.RetryAfter = time.Second
	return e
}
