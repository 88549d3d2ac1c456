package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// The gateway's other addresses are beside those for devices, whichever protocol the device speaks.
func TestAddressesOfTheGateway(t *testing.T) {
	for address, want := range map[string]string{
		"https://gw.example/ws/mcp": "https://gw.example", "wss://gw.example/ws/chat": "https://gw.example",
		"http://gw.example/farhand/ws/mcp": "http://gw.example/farhand", "ws://gw.example": "http://gw.example",
	} {
		u, err := endpoint(address)
		if err != nil {
			t.Fatal(err)
		}
		web := newWeb(u, nil)
		if got := web.base.String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// An answer that a connection did not take is sent on a later one.
func TestAnswersThatCannotBeSentAreKept(t *testing.T) {
	var upgrader websocket.Upgrader
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			_ = conn.Close()
		}
	}))
	defer gateway.Close()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(gateway.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close() // so that each write fails
	c := &Client{}
	c.keepLost([]byte(`{"id":1,"error":{}}`), []byte(`{"id":2,"error":{}}`))
	p := &mcpPipe{client: c, lines: make(chan []byte, 1)}
	p.sendLines(context.Background(), &link{conn: conn})
	if lost := c.takeLost(); len(lost) != 2 {
		t.Errorf("%d answers are kept of 2", len(lost))
	}
	p.lines <- []byte(`{"id":3,"result":{}}`)
	p.sendLines(context.Background(), &link{conn: conn})
	if string(p.unsent) != `{"id":3,"result":{}}` {
		t.Errorf("unsent is %q", p.unsent)
	}
}
