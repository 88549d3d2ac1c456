package farhand_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/ws/node/nodetest"
)

const nodeToken = "a-token-of-nodes-0123456789"

// Nodes connect where the operator says, also at the address that their apps know, host and port. Everything else that
// is there stays what it is.
func TestNodePath(t *testing.T) {
	t.Parallel()
	for path, other := range map[string]string{
		"/ws/node": "/", "/": "/ws/node", "/openclaw": "/ws/node", "off": "/ws/node",
	} {
		cfg := farhand.DefaultConfig()
		cfg.Token, cfg.NodePath = nodeToken, path
		url := start(t, cfg)
		if path != "off" {
			greetsNode(t, url, path)
		}
		resp, err := http.Get(url + other)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || (other == "/") != (resp.StatusCode == http.StatusOK) {
			t.Errorf("nodes at %s: %s answers %d %s, %v", path, other, resp.StatusCode, text, err)
		}
		resp, err = http.Get(url + "/")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("nodes at %s: / answers %v, %v", path, resp, err)
		}
		_ = resp.Body.Close()
		if _, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+other, nil); err == nil {
			t.Errorf("nodes at %s: a WebSocket opens at %s", path, other)
		}
	}
}

// greetsNode connects a node at a path.
func greetsNode(t *testing.T, url, path string) {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+path, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer conn.Close()
	var challenge struct{ Payload struct{ Nonce string } }
	if err := conn.ReadJSON(&challenge); err != nil {
		t.Fatal(err)
	}
	connect := nodetest.Connect{
		Key: nodetest.NewKey(t), Nonce: challenge.Payload.Nonce, Auth: map[string]string{"token": nodeToken},
	}
	if err := conn.WriteMessage(websocket.TextMessage, connect.Frame()); err != nil {
		t.Fatal(err)
	}
	var welcome json.RawMessage
	if err := conn.ReadJSON(&welcome); err != nil || !strings.Contains(string(welcome), "hello-ok") {
		t.Errorf("%s: %s, %v", path, welcome, err)
	}
}

// A path that something else has, or that is none, is refused at the start.
func TestNodePathIsChecked(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"ws/node", "/ws/chat", "/ws/mcp", "/api/nodes", "/mcp", "/console/", "/:id", "/*any", "/a//b", "/../x",
		"/readyz", "/ws/node/", "/a b",
	} {
		cfg := farhand.DefaultConfig()
		cfg.Token, cfg.NodePath = nodeToken, path
		_, err := farhand.New(t.Context(), cfg, quiet)
		if err == nil || !strings.Contains(err.Error(), "FARHAND_NODE_PATH") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
