package farhand_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
)

// getAs reads a page of a gateway with a token.
func getAs(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// The limits that a gateway is configured with are announced: to devices in the two frames that open a connection, and
// to each caller those that hold for this caller.
func TestLimitsAreAnnounced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, path, `tools:
  - {id: photos, names: "camera_*", calls_per_minute: {device: 7}}
  - {id: guests, for: {roles: approver}, calls_per_minute: 3}
`)
	cfg := farhand.DefaultConfig()
	cfg.PolicyFile, cfg.LimitIdentity, cfg.MaxFrame, cfg.MaxOutput = path, 600, 100_000, 200_000
	cfg.MaxTools, cfg.MaxToolBytes, cfg.FrameRate, cfg.FrameBurst, cfg.MaxCalls = 5, 50_000, 20, 40, 3
	url := start(t, cfg, farhand.WithAuthenticator(byRole))
	want := map[string]any{
		"frame_bytes": 100_000.0, "output_bytes": 200_000.0, "frames_per_second": 20.0, "frame_burst": 40.0,
		"tools": 5.0, "tool_bytes": 50_000.0, "tool_bytes_per_second": 32768.0, "schema_bytes": 65536.0,
		"schema_depth": 32.0, "description_characters": 1024.0, "calls": 3.0,
	}
	device, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat",
		http.Header{"Authorization": {"Bearer device"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	if err := device.WriteMessage(websocket.TextMessage, []byte(`{"type":"connect"}`)); err != nil {
		t.Fatal(err)
	}
	for _, frame := range []string{"session_start", "connected"} {
		var got map[string]any
		if err := device.ReadJSON(&got); err != nil || got["type"] != frame {
			t.Fatalf("%v, %v", got, err)
		}
		if !reflect.DeepEqual(got["limits"], any(want)) {
			t.Errorf("%s has %v, want %v", frame, got["limits"], want)
		}
	}
	for roles, rates := range map[string]string{
		"caller": `[{"rule":"FARHAND_LIMIT_IDENTITY","per":"identity","calls":600,"window_seconds":60},` +
			`{"rule":"photos","per":"device","tools":["camera_*"],"calls":7,"window_seconds":60}]`,
		"approver": `[{"rule":"FARHAND_LIMIT_IDENTITY","per":"identity","calls":600,"window_seconds":60},` +
			`{"rule":"photos","per":"device","tools":["camera_*"],"calls":7,"window_seconds":60},` +
			`{"rule":"guests","per":"identity","tools":["*"],"calls":3,"window_seconds":60}]`,
	} {
		status, body := getAs(t, url+"/api/limits", roles)
		var got struct {
			BodyBytes int64 `json:"body_bytes"`
			Timeout   int64 `json:"call_timeout_ms"`
			Rates     json.RawMessage
			Device    map[string]any
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		if string(got.Rates) != rates || !reflect.DeepEqual(got.Device, want) ||
			got.BodyBytes != cfg.HTTP.MaxBody || got.Timeout != cfg.CallTimeout.Milliseconds() {
			t.Errorf("%s: %s", roles, body)
		}
	}
	if status, body := getAs(t, url+"/api/limits", "device"); status != http.StatusForbidden {
		t.Error(fmt.Sprint(status), body)
	}
}
