package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/registry"
)

// ask has a device ask to be paired.
func (h *house) ask(device string) pairing.Asked {
	h.Helper()
	asked, err := h.pairing.Ask(h.Context(), pairing.Request{
		DeviceID: device, DeviceName: "the " + device, Platform: "linux", Tools: []string{"notify"},
	}, netip.MustParsePrefix("10.0.0.1/32"))
	h.must(err)
	return asked
}

// Approvers decide who is paired, with the code or, where everybody may ask, by the device's id. Nobody else does, and
// never a model.
func TestPairing(t *testing.T) {
	audit := new(book)
	h := newHouse(t, options{mode: pairing.ModeOpen, audit: audit})
	door, gate := h.ask("door"), h.ask("gate")
	for _, args := range []string{
		`{"action":"approve","deviceId":"door"}`, `{"action":"reject","deviceId":"door"}`,
		fmt.Sprintf(`{"action":"approve","code":%q}`, door.Code),
	} {
		for _, token := range []string{"shared", "head", "anna"} {
			if _, err := h.talk(token, "", "", "nodes", args); !errors.Is(err, registry.CodePolicyDenied) {
				t.Errorf("a model of %s decided %s: %v", token, args, err)
			}
		}
		if said := h.post("anna", "nodes", args); said.Code != registry.CodeForbidden {
			t.Errorf("somebody who approves nothing decided %s: %+v", args, said)
		}
	}
	if said := h.post("anna", "nodes", `{"action":"pending"}`); said.Code != registry.CodeForbidden {
		t.Errorf("somebody who approves nothing was told who waits: %+v", said)
	}
	for _, token := range []string{"head", "shared"} {
		said := h.post(token, "nodes", `{"action":"pending"}`)
		if !strings.Contains(said.Output, `"door", called "the door"`) || !strings.Contains(said.Output, `"gate"`) ||
			strings.Contains(said.Output, door.Code) {
			t.Errorf("%s was told %+v", token, said)
		}
	}
	if said := h.post("head", "nodes", `{"action":"approve","deviceId":"door"}`); !said.Success {
		t.Errorf("approve by id: %+v", said)
	}
	if said := h.post("head", "nodes", fmt.Sprintf(`{"action":"reject","code":%q}`, gate.Code)); !said.Success {
		t.Errorf("reject by code: %+v", said)
	}
	for _, args := range []string{`{"action":"approve","deviceId":"nobody"}`,
		`{"action":"approve","code":"ABCD-2345"}`} {
		if said := h.post("head", "nodes", args); said.Code != registry.CodeNotFound {
			t.Errorf("%s: %+v", args, said)
		}
	}
	got, err := h.pairing.Collect(t.Context(), door.Secret)
	if err != nil || got.State != pairing.StateApproved || got.Credential == "" {
		t.Errorf("the door: %+v, %v", got, err)
	}
	if got, err := h.pairing.Collect(t.Context(), gate.Secret); err != nil || got.State != pairing.StateRejected {
		t.Errorf("the gate: %+v, %v", got, err)
	}
	lines := audit.of(registry.AuditPairDecide)
	if len(lines) != 3 || lines[0].DeviceID != "door" || lines[0].Outcome != registry.AuditAllowed ||
		lines[1].Outcome != registry.AuditDenied || lines[2].Outcome != registry.AuditFailed ||
		lines[0].Actor.User != "anna" {
		t.Errorf("the audit log has %+v", lines)
	}
	// Paired and away: that is what an action says, and status, to those who may see the device.
	for _, tool := range []string{`{"action":"notify","body":"x","deviceId":"door"}`,
		`{"action":"describe","deviceId":"door"}`} {
		if said := h.post("head", "nodes", tool); said.Code != registry.CodeNotConnected {
			t.Errorf("%s: %+v", tool, said)
		}
		if said := h.post("bob", "nodes", tool); said.Code != registry.CodeSessionNotFound {
			t.Errorf("%s by another user: %+v", tool, said)
		}
	}
	said := h.post("head", "nodes", `{"action":"status"}`)
	if !strings.Contains(said.Output, `"door", called "the door": paired since`) {
		t.Errorf("status: %+v", said)
	}
	if said := h.post("bob", "nodes", `{"action":"status"}`); strings.Contains(said.Output, "door") {
		t.Errorf("status of another user: %+v", said)
	}
}

// Where a code is needed, an id is no way around it; and two devices that say they are the same are not told apart.
func TestPairingNeedsTheCode(t *testing.T) {
	h := newHouse(t, options{})
	asked := h.ask("door")
	if said := h.post("head", "nodes", `{"action":"approve","deviceId":"door"}`); said.Code != registry.CodeNotFound ||
		!strings.Contains(said.Detail, "code") {
		t.Errorf("approved by id: %+v", said)
	}
	if said := h.post("head", "nodes", `{"action":"approve","deviceId":"`+asked.ID+`"}`); said.Success {
		t.Errorf("approved by the request: %+v", said)
	}
	if said := h.post("guest", "nodes", fmt.Sprintf(`{"action":"approve","code":%q}`, asked.Code)); said.Success {
		t.Errorf("approved by somebody who may not: %+v", said)
	}
	h = newHouse(t, options{mode: pairing.ModeOpen})
	h.ask("door")
	h.ask("door")
	if said := h.post("head", "nodes", `{"action":"approve","deviceId":"door"}`); said.Success ||
		!strings.Contains(said.Detail, "code") {
		t.Errorf("one of two: %+v", said)
	}
}
