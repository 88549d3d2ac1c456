package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/pairing"
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
