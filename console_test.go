package farhand_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent/access/jwt"
)

// TestPagesNeedNoCredential: the pages are served to all, with their headers, and hold no data. FARHAND_CONSOLE=off
// leaves them out.
func TestPagesNeedNoCredential(t *testing.T) {
	t.Parallel()
	on, off := start(t, farhand.Config{Token: adminToken}), start(t, farhand.Config{Token: adminToken, Console: "off"})
	for _, path := range []string{"/console/", "/console/calls/x", "/device", "/icon.svg"} {
		resp, err := http.Get(on + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Security-Policy") == "" ||
			resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
		if status, body := send(t, off+path, "", ""); status != http.StatusNotFound {
			t.Errorf("%s is switched off: %d %.80s", path, status, body)
		}
	}
	// The canvas of the device page has an opaque origin, and loads its own scripts.
	frame, _ := send(t, on+"/device/canvas", "", "")
	asset, err := http.NewRequest(http.MethodGet, on+"/assets/none.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	asset.Header.Set("Origin", "null")
	if resp, err := http.DefaultClient.Do(asset); err != nil || resp.StatusCode != http.StatusNotFound ||
		frame != http.StatusOK {
		t.Errorf("the canvas: %d, its assets: %v (%v)", frame, resp, err)
	} else {
		resp.Body.Close()
	}
	for path, want := range map[string]int{"/assets/none.js": 404, "/device/none": 404, "/console": 200} {
		if status, body := send(t, on+path, "", ""); status != want {
			t.Errorf("%s: %d %.80s", path, status, body)
		}
	}
	if status, _ := send(t, on+"/console/", "{}", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
	if _, err := farhand.LoadConfig([]string{"FARHAND_CONSOLE=maybe"}); err == nil {
		t.Error("FARHAND_CONSOLE=maybe is accepted")
	}
}

// TestMe: a caller learns its roles and what the gateway is set up for, and nothing secret.
func TestMe(t *testing.T) {
	t.Parallel()
	url := start(t, farhand.Config{Token: adminToken, Pairing: "off", JWT: jwt.Settings{
		Issuer: "issuer", Audience: "farhand", Secret: matrixSecret,
	}}, farhand.WithModel(&askedModel{}))
	_, made := send(t, url+"/api/keys", `{"name":"ci","roles":["caller","approver"],"user_id":"ann"}`, adminToken)
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		adminToken: `{"tenant":"default","roles":["admin"],"chat":true,"pairing":"off"}`,
		key.Key: `{"tenant":"default","user_id":"ann","name":"ci","roles":["caller","approver"],"chat":true,` +
			`"pairing":"off"}`,
	} {
		if status, body := send(t, url+"/api/me", "", token); status != http.StatusOK || body != want+"\n" {
			t.Errorf("%d %s, want %s", status, body, want)
		}
	}
}
