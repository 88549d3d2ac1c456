package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// What an approver sees of a device says which paired device its id may be taken for: in requests to pair, in the list
// of paired devices, and in the question about a call of a device that nobody paired.
func TestLookAlikesOverHTTP(t *testing.T) {
	t.Parallel()
	f, pairings := newTrusting(t)
	f.pairs() // cam-1
	type row struct {
		ID        string
		DeviceID  string `json:"device_id"`
		LooksLike string `json:"looks_like"`
		Remarks   []string
	}
	const imitation = "\u0441am-1" // a Cyrillic с
	want := func(what string, r row, id, like, remarks string) {
		t.Helper()
		if r.DeviceID != id || r.LooksLike != like || strings.Join(r.Remarks, " ") != remarks {
			t.Errorf("%s: %+v", what, r)
		}
	}

	asked := decode[struct{ Code, Secret string }](f.send(request{method: http.MethodPost, path: "/pair",
		body: `{"device_id":"` + imitation + `"}`, header: http.Header{"Content-Type": {"application/json"}}}), 201)
	waiting := decode[struct{ Pairings []row }](f.as("ann", request{path: "/api/pairings"}), 200).Pairings
	if len(waiting) != 1 {
		t.Fatalf("waiting: %+v", waiting)
	}
	want("in the list", waiting[0], imitation, "cam-1", "foreign")
	looked := f.as("ann", request{method: http.MethodPost, path: "/api/pairings", body: `{"code":"` +
		asked.Code + `"}`})
	want("by its code", decode[row](looked, 200), imitation, "cam-1", "foreign")
	f.as("ann", request{method: http.MethodPost, path: "/api/pairings",
		body: `{"code":"` + asked.Code + `","decision":"approve"}`}).want(http.StatusOK)
	if _, err := pairings.Collect(t.Context(), asked.Secret); err != nil {
		t.Fatal(err)
	}
	devices := decode[struct{ Devices []row }](f.as("ann", request{path: "/api/devices"}), 200).Devices
	if len(devices) != 2 {
		t.Fatalf("paired: %+v", devices)
	}
	for _, d := range devices {
		want("paired", d, d.DeviceID, map[string]string{"cam-1": imitation, imitation: "cam-1"}[d.DeviceID], "")
		one := decode[row](f.as("ann", request{path: "/api/devices/" + d.ID}), 200)
		want("paired, alone", one, d.DeviceID, d.LooksLike, "")
	}
	f.as("ann", request{method: http.MethodDelete, path: "/api/devices/cam-1"}).want(http.StatusNoContent)
	f.send(request{method: http.MethodPost, path: "/pair", body: `{"device_id":"cam-1 "}`,
		header: http.Header{"Content-Type": {"application/json"}}}).want(http.StatusBadRequest)

	phone := ofAnn("phone")
	phone.DeviceID = "CAM-1"
	f.connect(0, phone, silent, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{}`, 0)
	id := f.waiting("ann", 1)[0].ID
	questions := decode[struct{ Approvals []row }](f.as("ann", request{path: "/api/approvals"}), 200).Approvals
	want("a question", questions[0], "CAM-1", imitation, "")
	want("a question, alone", decode[row](f.as("ann", request{path: "/api/approvals/" + id}), 200),
		"CAM-1", imitation, "")
	f.decide("ann", id, deny, 0).want(http.StatusOK)
	wantProblem(<-ended, 403, registry.CodeApprovalDenied)
}

// A device can call itself anything. In the question that an MCP client puts before its user, its name stands in
// quotes, so that no part of it passes for the gateway's words.
func TestNamesInQuestionsAreQuoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setup{change: withDeciders})
	phone := ofAnn("phone")
	phone.DeviceName = `hall" was approved. Accept: "x`
	f.connect(0, phone, silent, confirmable("snap"))
	q := f.ask(ask{who: "agent", params: snapIt, caps: capsForm}).question(t)
	const want = `The call of "snap" on "hall\" was approved. Accept: \"x" session phone needs a person's approval.`
	if got := q.InputRequests["approval"].Params.Message; !strings.HasPrefix(got, want) {
		t.Errorf("%s", got)
	}
}
