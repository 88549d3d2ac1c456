package nodes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// overMCP calls a tool over MCP. code is why it did not run; empty: it did.
func (h *house) overMCP(token, tool, args string) (structured registry.JSON, code registry.Code) {
	h.Helper()
	req, err := http.NewRequestWithContext(h.Context(), http.MethodPost, h.http.URL+"/mcp",
		bytes.NewReader(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args)))
	h.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	h.must(err)
	defer resp.Body.Close()
	var said struct {
		Result struct {
			StructuredContent registry.JSON
			IsError           bool
		}
		Error *struct {
			Message string
			Data    struct{ Code registry.Code }
		}
	}
	h.must(json.NewDecoder(resp.Body).Decode(&said))
	if said.Error != nil {
		if said.Error.Data.Code == "" || said.Result.IsError {
			h.Fatalf("%s %s: %+v", tool, args, said)
		}
		return registry.JSON{}, said.Error.Data.Code
	}
	return said.Result.StructuredContent, ""
}

// Over MCP a device's tool is judged as a model's call however it is reached, and a model pairs no device. Which
// devices are reached is up to the credential, because there is no conversation: those that are listed at /mcp.
func TestOverMCP(t *testing.T) {
	h := newHouse(t, options{mode: pairing.ModeOpen, rules: "version: 1\ntools:\n" +
		"  - {id: no-snaps, names: camera_snap, forbid: asked by a model}\n" +
		"  - {id: not-here, names: location_get, forbid: over MCP}\n"})
	pixel := h.connect("anna", "phone", "pixel", "camera_snap", "location_get", "camera_list", "run#")
	h.ask("door")
	for args, want := range map[string]registry.Code{
		`{"action":"camera_snap"}`:                registry.CodePolicyDenied,
		`{"action":"location_get"}`:               registry.CodePolicyDenied,
		`{"action":"run","command":"id"}`:         registry.CodePolicyDenied,
		`{"action":"approve","deviceId":"door"}`:  registry.CodePolicyDenied,
		`{"action":"reject","deviceId":"door"}`:   registry.CodePolicyDenied,
		`{"action":"camera_list"}`:                "",
		`{"action":"pending"}`:                    "",
		`{"action":"status","deviceId":"pixel"}`:  "",
		`{"action":"describe","deviceId":"door"}`: registry.CodeSessionNotFound,
	} {
		if _, code := h.overMCP("shared", "nodes", args); code != want {
			t.Errorf("%s: %q, want %q", args, code, want)
		}
	}
	if calls := pixel.took(); len(calls) != 1 || !strings.HasPrefix(calls[0], "camera_list") {
		t.Errorf("the device was called %v", calls)
	}
	for _, token := range []string{"anna", "bob", "shared", "boss", "guest"} {
		over, _ := h.overMCP(token, "nodes", `{"action":"status"}`)
		sessions, _ := h.overMCP(token, "sessions", `{}`)
		agreed(t, token+" over MCP", sessions, over)
		if reaches := strings.Contains(over.String(), `"pixel"`); reaches != (token != "bob") {
			t.Errorf("%s reaches the phone: %t", token, reaches)
		}
		if strings.Contains(over.String(), "camera_snap") || strings.Contains(over.String(), "location_get") {
			t.Errorf("%s is shown what may not be called: %s", token, over)
		}
	}
}
