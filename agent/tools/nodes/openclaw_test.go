package nodes_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// openclaw is a scripted OpenClaw node. It answers as a phone and a node host would.
type openclaw struct {
	conn *websocket.Conn
	id   string
	asks bool // its exec approvals require a person

	mu    sync.Mutex
	calls []string
}

func openclawCommands() []string {
	return []string{
		"system.notify", "camera.snap", "camera.list", "camera.clip", "screen.record",
		"screen.snapshot", "location.get", "photos.latest", "notifications.list", "device.info", "device.status",
		"device.health", "device.permissions", "system.which", "system.run", "system.run.prepare", "canvas.present",
		"canvas.hide", "canvas.navigate", "canvas.eval", "canvas.snapshot", "canvas.a2ui.pushJSONL",
		"canvas.a2ui.reset", "acme.blink",
	}
}

// connectOpenClaw has a node connect, and waits until it is listed with its tools.
func (h *house) connectOpenClaw(token string) *openclaw {
	h.Helper()
	return h.connectOpenClawWith(token, len(openclawCommands())-1, openclawCommands()...) // but system.run.prepare
}

// connectOpenClawWith has a node connect with commands, of which as many become tools.
func (h *house) connectOpenClawWith(token string, tools int, commands ...string) *openclaw {
	h.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(strings.Replace(h.http.URL, "http", "ws", 1)+"/ws/node", nil)
	h.must(err)
	key := nodetest.NewKey(h.T)
	n := &openclaw{conn: conn, id: key.ID}
	var challenge struct{ Payload struct{ Nonce string } }
	h.must(conn.SetReadDeadline(time.Now().Add(testTimeout)))
	h.must(conn.ReadJSON(&challenge))
	h.must(conn.WriteMessage(websocket.TextMessage, nodetest.Connect{
		Key: key, Nonce: challenge.Payload.Nonce, Platform: "linux", Commands: commands,
		Auth: map[string]string{"token": token},
	}.Frame()))
	h.must(conn.SetReadDeadline(time.Time{}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serve()
	}()
	h.Cleanup(func() { _ = conn.Close(); <-ended })
	testkit.Eventually(h.T, "the node is listed with its tools", func() bool {
		found, _, err := h.store.List(h.Context(), registry.Query{
			Tenant: registry.DefaultTenant, Target: registry.Target{DeviceID: key.ID}, Limit: 1,
		})
		h.must(err)
		return len(found) == 1 && len(found[0].Tools) == tools
	})
	return n
}

func (n *openclaw) serve() {
	for i := 0; ; i++ {
		var f struct {
			Event   string
			Payload struct{ ID, Command, ParamsJSON string }
		}
		if n.conn.ReadJSON(&f) != nil {
			return
		}
		if f.Event != "node.invoke.request" {
			continue
		}
		n.mu.Lock()
		n.calls = append(n.calls, f.Payload.Command+f.Payload.ParamsJSON)
		n.mu.Unlock()
		params := map[string]any{"id": f.Payload.ID, "nodeId": n.id, "ok": true}
		payload := n.answer(f.Payload.Command, f.Payload.ParamsJSON)
		if payload == "" {
			params["ok"], params["error"] = false, map[string]string{
				"code": "SYSTEM_RUN_DENIED", "message": "SYSTEM_RUN_DENIED: approval required",
			}
		} else {
			params["payloadJSON"] = payload
		}
		if n.conn.WriteJSON(map[string]any{
			"type": "req", "id": f.Payload.ID + ":r", "method": "node.invoke.result", "params": params,
		}) != nil {
			return
		}
	}
}

// answer returns the payload of a command. Empty: the node's rules refuse it.
func (n *openclaw) answer(command, params string) string {
	const picture = `{"format":"jpg","base64":"/9j/","width":1,"height":1}`
	switch command {
	case "camera.snap", "camera.clip", "screen.record", "screen.snapshot", "canvas.snapshot":
		return picture
	case "photos.latest":
		return `{"photos":[` + picture + `]}`
	case "camera.list":
		return `{"devices":[{"id":"1","name":"did","position":"back"}]}`
	case "location.get":
		return `{"lat":48.2,"lon":16.3,"source":"gps"}`
	case "system.run.prepare":
		return `{"plan":{"argv":["/bin/sh","-lc","id"],"commandText":"/bin/sh -lc id","policySnapshot":{}},` +
			`"execPolicy":{"security":"full","ask":"always"}}`
	case "system.run":
		if n.asks && !strings.Contains(params, `"approved":true`) {
			return ""
		}
		return `{"exitCode":0,"stdout":"did","stderr":"","timedOut":false}`
	}
	return `{"did":true}`
}

// took returns the invocations since the last time, without timeouts.
func (n *openclaw) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls
	n.calls = nil
	return calls
}

// The tools drive OpenClaw nodes as they drive any other device: by the same actions, with the same questions.
func TestOpenClawNodes(t *testing.T) {
	h := newHouse(t, options{private: true})
	node := h.connectOpenClaw("anna")
	for _, tt := range []struct {
		tool, args string
		call       string // of the node
		asks       string // the tool about which a person is asked
		parts      int
	}{
		{"nodes", `{"action":"notify","body":"Tea"}`, `system.notify{"title":"","body":"Tea"}`, "", 0},
		{"nodes", `{"action":"camera_snap","facing":"front"}`, `camera.snap{}`, "camera_snap", 1},
		{"nodes", `{"action":"camera_list"}`, `camera.list{}`, "camera_list", 0},
		{"nodes", `{"action":"camera_clip","duration":"2s"}`, `camera.clip{"durationMs":2000}`, "camera_clip", 1},
		{"nodes", `{"action":"screen_record"}`, `screen.record{"durationMs":10000}`, "screen_record", 1},
		{"nodes", `{"action":"screen_snapshot"}`, `screen.snapshot{}`, "screen_snapshot", 1},
		{"nodes", `{"action":"photos_latest","limit":1}`, `photos.latest{"limit":1}`, "photos_latest", 1},
		{"nodes", `{"action":"location_get"}`, `location.get{}`, "location_get", 0},
		{"nodes", `{"action":"notifications_list"}`, `notifications.list{}`, "notifications_list", 0},
		{"nodes", `{"action":"device_status"}`, `device.status{}`, "", 0},
		{"nodes", `{"action":"which","bins":["git"]}`, `system.which{"bins":["git"]}`, "", 0},
		{"nodes", `{"action":"run","command":"id"}`, `system.run{"command":["/bin/sh","-lc","id"],"timeoutMs":`, "run",
			0},
		{"node-invoke", `{"command":"acme_blink","params":{"times":2}}`, `acme.blink{"times":2}`, "acme_blink", 0},
		{"canvas", `{"action":"present","url":"https://example.com/"}`, `canvas.present{"url":"https://example.com/"}`,
			"", 0},
		{"canvas", `{"action":"eval","javaScript":"1"}`, `canvas.eval{"javaScript":"1"}`, "canvas_eval", 0},
		{"canvas", `{"action":"snapshot","quality":50}`, `canvas.snapshot{"quality":0.5}`, "", 1},
		{"canvas", `{"action":"a2ui_push","jsonl":"{}"}`, `canvas.a2ui.pushJSONL{"jsonl":"{}"}`, "", 0},
		{"canvas", `{"action":"a2ui_reset"}`, `canvas.a2ui.reset{}`, "", 0},
		{"canvas", `{"action":"hide"}`, `canvas.hide{}`, "", 0},
	} {
		res, err := h.talk("anna", node.id+"@anna", agent.ContextMain, tt.tool, tt.args)
		calls := node.took()
		if err != nil || !res.Success || len(res.Parts) != tt.parts || len(calls) != 1 ||
			!strings.HasPrefix(calls[0], tt.call) {
			t.Errorf("%s %s: %+v, %v; the node got %q", tt.tool, tt.args, res, err, calls)
		}
		var want []string
		if tt.asks != "" {
			want = []string{tt.asks}
		}
		if asked := h.people.heard(); !slices.Equal(asked, want) {
			t.Errorf("%s %s: asked about %v, want %v", tt.tool, tt.args, asked, want)
		}
	}
}

// A node whose exec approvals ask is satisfied by the one question that the gateway asks, and its question is asked if
// the policy has none.
func TestOpenClawNodeAsksOnce(t *testing.T) {
	for rules, want := range map[string]string{
		"": "system.run system.run.prepare system.run",
		"version: 1\ntools:\n  - {id: runs, names: run, approval: never}\n": "system.run system.run " +
			"system.run.prepare system.run",
	} {
		for _, allow := range []bool{true, false} {
			h := newHouse(t, options{rules: rules})
			h.people.allow = allow
			node := h.connectOpenClaw("anna")
			node.asks = true
			res, err := h.talk("anna", node.id+"@anna", agent.ContextMain, "nodes", `{"action":"run","command":"id"}`)
			asked := h.people.heard()
			var commands []string
			for _, call := range node.took() {
				command, _, _ := strings.Cut(call, "{")
				commands = append(commands, command)
			}
			if !slices.Equal(asked, []string{"run"}) {
				t.Errorf("%q: asked about %v", rules, asked)
			}
			got := strings.Join(commands, " ")
			switch {
			case allow && (err != nil || !res.Success || got != want):
				t.Errorf("%q: %+v, %v, %s", rules, res, err, got)
			case !allow && (err == nil || registry.AsError(err).Code != registry.CodeApprovalDenied ||
				strings.Contains(got, "prepare")):
				t.Errorf("%q: denied, but %+v, %v, %s", rules, res, err, got)
			}
		}
	}
}

// The example of the docs for OpenClaw's allow and deny lists does what they do.
func TestOpenClawLists(t *testing.T) {
	page, err := os.ReadFile("../../../docs/openclaw-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	rules, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	h := newHouse(t, options{rules: rules})
	node := h.connectOpenClawWith("anna", 1, "camera.snap", "camera.clip")
	if _, err := h.talk("anna", node.id+"@anna", "", "nodes", `{"action":"camera_clip"}`); !errors.Is(err,
		registry.CodeToolNotFound) {
		t.Errorf("a denied command: %v", err)
	}
	res, err := h.talk("anna", node.id+"@anna", "", "nodes", `{"action":"camera_snap"}`)
	if err != nil || !res.Success || h.people.heard() != nil {
		t.Errorf("an allowed command: %+v, %v", res, err)
	}
}
