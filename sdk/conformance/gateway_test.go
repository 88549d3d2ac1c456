package conformance_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/internal/testkit"
)

// gateway is one that a case plays. Every request of the device waits until a step answers it.
type gateway struct {
	t        *testing.T
	server   *httptest.Server
	dials    chan request // upgrades of /ws/chat
	posts    chan request // POST /pair…
	puts     chan request // PUT /uploads/…
	upgrader websocket.Upgrader

	mu      sync.Mutex
	refusal *refusal // the last one, which a browser asks for again
	paired  bool     // the device has a key, and must sign
}

// request is one that waits for its answer.
type request struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	done func()
}

// newGateway starts a gateway. Pages of all origins may use it.
func newGateway(t *testing.T) *gateway {
	g := &gateway{
		t: t, dials: make(chan request), posts: make(chan request), puts: make(chan request),
		upgrader: websocket.Upgrader{
			Subprotocols: []string{"clawseed.v1"}, ReadBufferSize: 64 << 10,
			CheckOrigin: func(*http.Request) bool { return true },
		},
	}
	over := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/chat", func(w http.ResponseWriter, r *http.Request) {
		if !websocket.IsWebSocketUpgrade(r) {
			g.explain(w, r)
			return
		}
		g.wait(w, r, g.dials, over)
	})
	mux.HandleFunc("POST /pair", func(w http.ResponseWriter, r *http.Request) { g.wait(w, r, g.posts, over) })
	mux.HandleFunc("POST /pair/{step}", func(w http.ResponseWriter, r *http.Request) { g.wait(w, r, g.posts, over) })
	mux.HandleFunc("PUT /uploads/{secret}", func(w http.ResponseWriter, r *http.Request) { g.wait(w, r, g.puts, over) })
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		if r.Method != http.MethodOptions {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		close(over)
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

// wait hands a request to the step that answers it.
func (g *gateway) wait(w http.ResponseWriter, r *http.Request, to chan<- request, over <-chan struct{}) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return // the device gave up
	}
	done := make(chan struct{})
	select {
	case to <- request{w, r, body, func() { close(done) }}:
	case <-over:
		return
	}
	select {
	case <-done:
	case <-over:
	}
}

// explain answers a browser that asks why its connection was refused.
func (g *gateway) explain(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	why, paired := g.refusal, g.paired
	g.mu.Unlock()
	if _, signature := proof(r); paired && signature == "" {
		why = &refusal{Status: http.StatusUnauthorized, Code: "unauthenticated", Detail: "The signature is missing."}
	}
	if why == nil {
		why = &refusal{Status: http.StatusBadRequest, Code: "invalid_request",
			Detail: "This address accepts only WebSocket connections."}
	}
	why.write(w)
}

// refusal is the answer to a connection that the gateway does not take.
type refusal struct {
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	RetryAfter string `json:"retry_after"`
}

func (f *refusal) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": f.Status, "code": f.Code, "detail": f.Detail})
}

// proof returns the token and the signature of a connection, from its headers or its subprotocols.
func proof(r *http.Request) (token, signature string) {
	token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	signature = r.Header.Get("Farhand-Signature")
	for _, protocol := range websocket.Subprotocols(r) {
		if rest, ok := strings.CutPrefix(protocol, "bearer."); ok {
			token = rest
		}
		if rest, ok := strings.CutPrefix(protocol, "signature."); ok {
			signature = rest
		}
	}
	return token, signature
}

// verify checks the signature of a paired device's connection.
func verify(signature, publicKey, nonce, device string) error {
	key, err := base64.RawURLEncoding.DecodeString(publicKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("the public key %q is malformed", publicKey)
	}
	signed, ok := strings.CutPrefix(signature, nonce+".")
	raw, err := base64.RawURLEncoding.DecodeString(signed)
	if !ok || err != nil || !ed25519.Verify(key, []byte("farhand-device-v1\n"+nonce+"\n"+device), raw) {
		return fmt.Errorf("the signature %q does not prove the key, with the nonce %q", signature, nonce)
	}
	return nil
}

// link is one connection of the device.
type link struct {
	conn   *websocket.Conn
	frames chan map[string]any // closed when the connection has ended
	ended  *websocket.CloseError
}

func (g *gateway) upgrade(ask request) *link {
	g.t.Helper()
	g.mu.Lock()
	g.refusal = nil
	g.mu.Unlock()
	conn, err := g.upgrader.Upgrade(ask.w, ask.r, nil)
	ask.done()
	if err != nil {
		g.t.Fatal(err)
	}
	l := &link{conn: conn, frames: make(chan map[string]any, 4096)}
	reading := make(chan struct{})
	g.t.Cleanup(func() {
		_ = conn.Close()
		<-reading
	})
	go func() {
		defer close(reading)
		defer close(l.frames)
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				if closed, ok := err.(*websocket.CloseError); ok {
					l.ended = closed
				}
				return
			}
			frame := map[string]any{}
			if json.Unmarshal(data, &frame) != nil {
				frame = map[string]any{"type": "not JSON", "text": string(data)}
			}
			l.frames <- frame
		}
	}()
	return l
}

func (l *link) send(t *testing.T, text []byte) {
	t.Helper()
	if err := l.conn.WriteMessage(websocket.TextMessage, text); err != nil {
		t.Fatal(err)
	}
}

// close sends a close frame, waits for the device's, and ends the connection.
func (l *link) close(t *testing.T, code int, reason string) {
	t.Helper()
	message := websocket.FormatCloseMessage(code, reason)
	if err := l.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(testkit.Limit)); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(testkit.Limit)
	for {
		select {
		case _, open := <-l.frames:
			if !open {
				_ = l.conn.Close()
				return
			}
		case <-deadline:
			t.Fatal("the device does not answer a close frame")
		}
	}
}

// sameQuery compares parameters of the device's URL with those that are expected; "-" means that there is none.
func sameQuery(want map[string]string, got url.Values) error {
	for name, value := range want {
		if has := got.Has(name); value == "-" && has || value != "-" && got.Get(name) != value {
			return fmt.Errorf("the parameter %s is %q, not %q", name, got.Get(name), value)
		}
	}
	return nil
}
