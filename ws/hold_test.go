package ws_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
)

// TestHold: a WebSocket that stays open, one that its server cuts, and what is none.
func TestHold(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws/chat" || r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Minute))
		if r.Header.Get("Authorization") == "Bearer stays" {
			_, _, _ = conn.ReadMessage() // until the client leaves
		}
	}))
	defer server.Close()
	if pings, err := ws.Hold(t.Context(), server.URL, "stays", nil, 200*time.Millisecond); pings != 1 || err != nil {
		t.Errorf("held: %d pings, %v", pings, err)
	}
	for name, tt := range map[string]struct{ url, token, says string }{
		"cut":       {server.URL, "cut", "was cut after"},
		"refused":   {server.URL, "", "status 401"},
		"no server": {"http://127.0.0.1:1", "", "refused"},
		"no URL":    {"gateway", "", "must look like"},
	} {
		if _, err := ws.Hold(t.Context(), tt.url, tt.token, nil, time.Minute); err == nil ||
			!strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
