package api_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// newNodeFleet is newTrusting at a gateway that serves OpenClaw nodes.
func newNodeFleet(t *testing.T, path string) *fleet {
	t.Helper()
	return newFleet(t, setup{change: func(cfg *api.Config) {
		withDeciders(cfg)
		store := cfg.Directory.(registry.Store)
		pairings, err := pairing.New(pairing.Config{Store: store, Mode: pairing.ModeOpen})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Credentials, cfg.Pairing = store, pairings
		if path != "" {
			cfg.DeviceNode, cfg.NodePath = http.NotFoundHandler(), path
		}
	}})
}

func TestSetupCodesOverHTTP(t *testing.T) {
	t.Parallel()
	f := newNodeFleet(t, "/ws/node")
	made := func(body string) (code struct {
		URL            string `json:"url"`
		BootstrapToken string `json:"bootstrapToken"`
		ExpiresAtMS    int64  `json:"expiresAtMs"`
	}) {
		t.Helper()
		var answer struct {
			SetupCode string `json:"setup_code"`
			PairURL   string `json:"pair_url"`
			URL       string `json:"url"`
		}
		r := f.as("ann", request{method: http.MethodPost, path: "/api/pairings/setup", body: body})
		r.want(http.StatusCreated).into(&answer)
		text, err := base64.RawURLEncoding.DecodeString(answer.SetupCode)
		if err != nil || json.Unmarshal(text, &code) != nil || answer.PairURL != "oc-pair://"+answer.SetupCode ||
			answer.URL != code.URL || !strings.HasPrefix(code.BootstrapToken, "fhs_") || code.ExpiresAtMS == 0 {
			t.Errorf("%s: %s", body, r.body)
		}
		return code
	}
	for body, want := range map[string]string{
		`{"url":"wss://gateway.example/deep/ws/node/"}`: "wss://gateway.example/deep/ws/node",
		`{"url":"https://gateway.example:8443/"}`:       "wss://gateway.example:8443",
		`{"name":"Phone","tools":["camera_*"]}`:         "",
	} {
		got := made(body).URL
		if want == "" && strings.HasPrefix(got, "ws://127.0.0.1:") && strings.HasSuffix(got, "/ws/node") {
			continue
		}
		if got != want {
			t.Errorf("%s: the node connects to %q", body, got)
		}
	}
	for body, status := range map[string]int{
		`{"url":"ftp://gateway.example"}`:      http.StatusBadRequest,
		`{"url":"wss://u:p@gateway.example"}`:  http.StatusBadRequest,
		`{"url":"wss://gateway.example/?a=b"}`: http.StatusBadRequest, `{"url":"ws:x"}`: http.StatusBadRequest,
		`{"tools":["a b"]}`: http.StatusBadRequest, `{"user":"bob"}`: http.StatusForbidden,
		`{"other":1}`: http.StatusBadRequest, `{"tools":7}`: http.StatusBadRequest,
	} {
		r := f.as("ann", request{method: http.MethodPost, path: "/api/pairings/setup", body: body})
		if r.status != status {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	off := newNodeFleet(t, "")
	if r := off.as("ann", request{method: http.MethodPost,
		path: "/api/pairings/setup"}); r.status != http.StatusNotFound {
		t.Errorf("without nodes: %d %s", r.status, r.body)
	}
}

func TestImportOverHTTP(t *testing.T) {
	t.Parallel()
	f := newNodeFleet(t, "/ws/node")
	send := func(who, body string) reply {
		return f.as(who, request{method: http.MethodPost, path: "/api/devices/import", body: body})
	}
	node := func(key, token string) string {
		return `{"public_key":"` + key + `","token_sha256":"` + auth.SecretDigest(token) +
			`","name":"Desk","tools":["run"]}`
	}
	another := base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	send("ann", `{"nodes":[`+node(publicKey, "a")+`]}`).want(http.StatusForbidden)
	var report struct {
		Nodes []struct {
			DeviceID string `json:"device_id"`
			Status   string
			Reason   string
		}
	}
	states := func(body string) string {
		t.Helper()
		send(token, body).want(http.StatusOK).into(&report)
		var all []string
		for _, n := range report.Nodes {
			all = append(all, n.Status)
		}
		return strings.Join(all, " ")
	}
	send(token, `{"nodes":[`+node(publicKey, "a")+`,{"public_key":"!"}]}`).want(http.StatusBadRequest) // imports none
	both := `{"user":"ann","nodes":[` + node(publicKey, "a") + `,` + node(another, "a") + `]}`
	if got := states(both); got != "imported refused" || report.Nodes[1].Reason == "" {
		t.Errorf("%s: %+v", got, report)
	}
	if got := states(`{"nodes":[` + node(publicKey, "a") + `,` + node(another, "b") + `]}`); got != "exists imported" {
		t.Errorf("again: %s", got)
	}
	var list struct {
		Devices []struct {
			DeviceID string `json:"device_id"`
			Node     bool
			UserID   string `json:"user_id"`
		}
	}
	f.as(token, request{path: "/api/devices"}).want(http.StatusOK).into(&list)
	if len(list.Devices) != 2 || !list.Devices[0].Node {
		t.Errorf("devices: %+v", list)
	}
	for _, body := range []string{
		`{}`, `{"nodes":[]}`, `{"nodes":[{"public_key":"!"}]}`, `{"nodes":7}`,
		`{"nodes":[` + strings.Repeat(`{},`, 50) + `{}]}`,
	} {
		if r := send(token, body); r.status != http.StatusBadRequest {
			t.Errorf("%.40s: %d %s", body, r.status, r.body)
		}
	}

	var rotated struct {
		Credential       string
		OnNextConnection bool `json:"on_next_connection"`
	}
	path := "/api/devices/" + report.Nodes[0].DeviceID
	f.as(token, request{method: http.MethodPost, path: path + "/rotate"}).want(http.StatusOK).into(&rotated)
	if rotated.Credential != "" || !rotated.OnNextConnection {
		t.Errorf("rotated: %+v", rotated)
	}
	shown := f.as(token, request{path: path}).want(http.StatusOK)
	if !strings.Contains(string(shown.body), `"renews_credential":true`) {
		t.Errorf("shown: %s", shown.body)
	}

	s := session(report.Nodes[0].DeviceID)
	s.DeviceID, s.Bound = report.Nodes[0].DeviceID, true
	device := f.connect(0, s, echo)
	var leaked struct {
		OnNextConnection bool `json:"on_next_connection"`
		Former           *struct {
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"former_secret"`
	}
	for _, connected := range []bool{true, false} {
		f.as(token, request{method: http.MethodPost, path: path + "/rotate", body: `{"overlap":0}`}).
			want(http.StatusOK).into(&leaked)
		if !leaked.OnNextConnection || leaked.Former == nil || time.Until(leaked.Former.ExpiresAt) > 11*time.Minute {
			t.Errorf("leaked: %+v", leaked)
		}
		if !connected {
			continue
		}
		if cause := await(t, "the node's connection to end", device.closed); cause != routing.CloseKicked {
			t.Errorf("closed because %s", cause)
		}
		device.work.Wait()
	}
}
