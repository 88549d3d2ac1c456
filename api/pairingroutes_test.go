package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

const (
	publicKey = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" // of RFC 8037
	asking    = `{"device_id":"cam-1","device_name":"Door","platform":"linux","tools":["photo"],"public_key":"` +
		publicKey + `"}`
)

// pairs has a device ask, be approved by ann, and collect its credential.
func (f *fleet) pairs() {
	f.Helper()
	var asked struct{ ID, Secret, Code string }
	nobody := http.Header{"Authorization": nil, "Content-Type": {"application/json"}}
	ask := func(path, body string) reply {
		return f.send(request{method: http.MethodPost, path: path, body: body, header: nobody})
	}
	ask("/pair", asking).want(http.StatusCreated).into(&asked)
	status := func() string {
		var s struct{ Status, Credential string }
		ask("/pair/status", `{"secret":"`+asked.Secret+`"}`).want(http.StatusOK).into(&s)
		return s.Status + " " + strings.SplitN(s.Credential, "_", 2)[0]
	}
	if got := status(); got != "pending " {
		f.Fatalf("before it is decided: %q", got)
	}
	if r := f.as("ann", request{path: "/api/pairings"}); !strings.Contains(string(r.body), asked.ID) {
		f.Fatalf("waiting: %s", r.body)
	}
	looked := f.as("ann", request{method: http.MethodPost, path: "/api/pairings",
		body: `{"code":"` + asked.Code + `"}`})
	for _, want := range []string{`"status":"pending"`, `"key_fingerprint"`, `"Door"`, `"photo"`} {
		if !strings.Contains(string(looked.body), want) {
			f.Errorf("who looks sees no %s: %s", want, looked.body)
		}
	}
	f.as("ann", request{method: http.MethodPost, path: "/api/pairings/" + asked.ID,
		body: `{"decision":"approve","name":"Front door"}`}).want(http.StatusOK)
	if got := status(); got != "approved fhd" {
		f.Fatalf("once it is approved: %q", got)
	}
}

func TestPairingOverHTTP(t *testing.T) {
	t.Parallel()
	f, _ := newTrusting(t)
	f.pairs()
	nobody := http.Header{"Authorization": nil, "Content-Type": {"application/json"}}
	for path, bodies := range map[string][]string{
		"/pair": {
			`{"device_id":7}`, `{"public_key":"x"}`, `{"public_key":"!"}`, `{"tools":"photo"}`, `{"a":1}`, `[]`,
			`{"device_name":"` + strings.Repeat("x", 9000) + `"}`,
		},
		"/pair/status": {`{}`, `{"secret":7}`, `{"code":"x"}`},
	} {
		for _, body := range bodies {
			r := f.send(request{method: http.MethodPost, path: path, body: body, header: nobody})
			if r.status != http.StatusBadRequest && r.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s %.60s: %d %s", path, body, r.status, r.body)
			}
		}
	}
	for _, body := range []string{
		`{}`, `{"code":7}`, `{"decision":"approve"}`, `{"code":"x","decision":"maybe"}`, `{"code":"x","tools":7}`,
		`{"code":"x","replace":"yes"}`, `{"code":"x","user":7}`,
	} {
		r := f.as("ann", request{method: http.MethodPost, path: "/api/pairings", body: body})
		if r.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	f.as("ann", request{method: http.MethodPost, path: "/api/pairings/x", body: `{}`}).want(http.StatusBadRequest)
	f.as("ann", request{method: http.MethodPost, path: "/api/pairings/x", body: `{"decision":"reject"}`}).
		want(http.StatusNotFound)
	f.as("agent", request{path: "/api/pairings"}).want(http.StatusForbidden)
}

// A paired device that is away is not connected, as with a session that may come back; it is not unknown.
func TestPairedDeviceThatIsAway(t *testing.T) {
	t.Parallel()
	f, _ := newTrusting(t)
	f.pairs()
	r := f.as("ann", request{method: http.MethodPost, path: "/api/tools/photo/call",
		body: `{"target":{"device_id":"cam-1"}}`})
	wantRetry(r)
	r = f.as("ann", request{method: http.MethodPost, path: "/api/tools/photo/call",
		body: `{"target":{"device_id":"cam-2"}}`})
	wantProblem(r, http.StatusNotFound, registry.CodeSessionNotFound)
}

func TestDevicesOverHTTP(t *testing.T) {
	t.Parallel()
	f, pairings := newTrusting(t)
	f.pairs()
	type device struct {
		ID, Name string
		DeviceID string `json:"device_id"`
		Waiting  []struct {
			Name, Hash string
			Changed    []string
			Before     json.RawMessage
		}
		Rejected []string
	}
	var list struct{ Devices []device }
	f.as("ann", request{path: "/api/devices?limit=5"}).want(http.StatusOK).into(&list)
	if len(list.Devices) != 1 || list.Devices[0].Name != "Front door" {
		t.Fatalf("%+v", list)
	}
	id := list.Devices[0].ID
	var bens struct{ Devices []device }
	f.as("ben", request{path: "/api/devices"}).want(http.StatusOK).into(&bens)
	f.as("ben", request{path: "/api/devices/" + id}).want(http.StatusNotFound)
	if len(bens.Devices) != 0 {
		t.Errorf("ben sees %+v", bens)
	}

	f.registers(pairings, id, "a photo", "siren")
	f.registers(pairings, id, "a photo, and a copy to somebody", "")
	var d device
	f.as("ann", request{path: "/api/devices/cam-1"}).want(http.StatusOK).into(&d)
	if len(d.Waiting) != 2 {
		t.Fatalf("waiting: %+v", d.Waiting)
	}
	for _, w := range d.Waiting {
		changed := strings.Join(w.Changed, " ")
		if w.Name == "photo" && (changed != "description" || len(w.Before) == 0) || w.Name == "siren" && changed != "" {
			t.Errorf("%+v", w)
		}
		body := `{"approve":[{"name":"` + w.Name + `","hash":"` + w.Hash + `"}]}`
		if w.Name == "siren" {
			body = `{"reject":["siren"]}`
		}
		f.as("ann", request{method: http.MethodPost, path: "/api/devices/cam-1/tools", body: body}).
			want(http.StatusOK).into(&d)
	}
	if len(d.Waiting) != 0 || strings.Join(d.Rejected, " ") != "siren" {
		t.Errorf("decided: %+v", d)
	}
	for _, body := range []string{`{}`, `{"approve":7}`, `{"reject":7}`, `{"reject":["a*"]}`,
		`{"approve":[{"name":"x","hash":"y"}]}`, `{"allow":[]}`} {
		f.as("ann", request{method: http.MethodPost, path: "/api/devices/cam-1/tools", body: body}).
			want(http.StatusBadRequest)
	}
	f.as("ann", request{method: http.MethodPut, path: "/api/devices/cam-1", body: `{"name":"Back door"}`}).
		want(http.StatusOK).into(&d)
	if d.Name != "Back door" {
		t.Errorf("renamed: %+v", d)
	}
	f.as("ann", request{method: http.MethodPut, path: "/api/devices/cam-1", body: `{"name":7}`}).
		want(http.StatusBadRequest)
	f.as("ben", request{method: http.MethodDelete, path: "/api/devices/cam-1"}).want(http.StatusNotFound)
	f.as("ann", request{method: http.MethodDelete, path: "/api/devices/cam-1"}).want(http.StatusNoContent)
	f.as("ann", request{path: "/api/devices/cam-1"}).want(http.StatusNotFound)
}

// Lists of paired devices say how many tools wait, and can be filtered by presence.
func TestDevicesByPresence(t *testing.T) {
	t.Parallel()
	var store registry.Store
	var pairings *pairing.Service
	f := newFleet(t, setup{change: func(cfg *api.Config) {
		withDeciders(cfg)
		store = cfg.Directory.(registry.Store)
		var err error
		if pairings, err = pairing.New(pairing.Config{Store: store, Mode: pairing.ModeOpen}); err != nil {
			t.Fatal(err)
		}
		cfg.Credentials, cfg.Pairing, cfg.Devices = store, pairings, store
	}})
	for _, id := range []string{"far", "near", "never"} {
		_, err := store.CreateCredential(t.Context(), registry.Credential{
			Tenant: registry.DefaultTenant, ID: "of-" + id, Kind: registry.CredentialDevice, DeviceID: id,
			Digest: auth.SecretDigest(id), Roles: []string{auth.NameDevice}, CreatedBy: "token",
		})
		f.must(err)
	}
	near, far := session("near"), session("far")
	near.DeviceID, near.Bound = "near", true
	far.Tenant, far.DeviceID, far.Bound = registry.DefaultTenant, "far", true
	f.connect(0, near, echo)
	f.must(store.RememberDevices(t.Context(), []registry.DeviceMemory{{
		KnownDevice: registry.KnownDevice{Session: far, LastSeen: time.Now()}, Life: time.Hour,
	}}))
	f.registers(pairings, "of-far", "a photo", "siren")

	type row struct {
		DeviceID string `json:"device_id"`
		Presence string
		LastSeen string `json:"last_seen"`
		Waiting  int    `json:"waiting_tools"`
	}
	list := func(query string) string {
		t.Helper()
		var all []string
		for cursor := ""; ; {
			var page struct {
				Devices    []row
				NextCursor string `json:"next_cursor"`
			}
			f.as(token, request{path: "/api/devices?limit=1" + query + cursor}).want(http.StatusOK).into(&page)
			for _, d := range page.Devices {
				if (d.LastSeen != "") != (d.Presence == "sleeping") {
					t.Errorf("%+v", d)
				}
				all = append(all, strings.TrimSpace(fmt.Sprint(d.DeviceID, " ", d.Waiting, " ", d.Presence)))
			}
			if page.NextCursor == "" {
				return strings.Join(all, ", ")
			}
			cursor = "&cursor=" + page.NextCursor
		}
	}
	for query, want := range map[string]string{
		"": "far 2, near 0, never 0", "&presence=any": "far 2 sleeping, near 0 connected, never 0",
		"&presence=sleeping": "far 2 sleeping", "&presence=connected": "near 0 connected",
	} {
		if got := list(query); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	f.as(token, request{path: "/api/devices?presence=away"}).want(http.StatusBadRequest)

	before := near // it was paired afterwards
	before.Tenant, before.Bound = registry.DefaultTenant, false
	f.must(store.RememberDevices(t.Context(), []registry.DeviceMemory{{
		KnownDevice: registry.KnownDevice{Session: before, LastSeen: time.Now()},
		Life:        time.Hour,
	}}))
	var asleep struct {
		Sessions []struct {
			SessionID string `json:"session_id"`
		}
	}
	f.as(token, request{path: "/api/sessions?presence=sleeping"}).want(http.StatusOK).into(&asleep)
	if len(asleep.Sessions) != 1 || asleep.Sessions[0].SessionID != "far" {
		t.Errorf("asleep: %+v", asleep)
	}
}

// registers has a paired device register photo and, if it has a name, another tool.
func (f *fleet) registers(pairings *pairing.Service, credential, description, other string) {
	f.Helper()
	tools := []registry.ToolSpec{{Name: "photo", Description: description, Parameters: []byte(`{"type":"object"}`)}}
	if other != "" {
		tools = append(tools, registry.ToolSpec{
			Name: other, Description: "loud", Parameters: []byte(`{"type":"object"}`),
		})
	}
	who := auth.Identity{
		Tenant: registry.DefaultTenant, Credential: auth.CredentialName(registry.CredentialDevice, credential),
	}
	_, err := pairings.Review(f.Context(), who, tools)
	f.must(err)
}
