package nodes_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// The tools sessions and nodes say the same of what somebody has, and of what can be called there, whoever asks, from
// wherever.
func TestSessionsAndStatusAgree(t *testing.T) {
	h := newHouse(t, options{})
	h.connect("anna", "phone", "pixel", "notify", "reset#")
	h.connect("anna", "tablet", "tab", "notify")
	h.connect("bob", "spy", "spy", "notify")
	h.connect("shared", "nobody", "lamp", "notify")
	for _, token := range []string{"anna", "bob", "boss", "shared"} {
		for _, kind := range []agent.ContextKind{agent.ContextMain, agent.ContextGroup} {
			for _, session := range []string{"phone", "nobody", "gone"} {
				name := fmt.Sprintf("%s in %s, %s", token, session, kind)
				sessions, err := h.talk(token, session, kind, "sessions", `{}`)
				h.must(err)
				status, err := h.talk(token, session, kind, "nodes", `{"action":"status"}`)
				h.must(err)
				agreed(t, name, sessions.Structured, status.Structured)
			}
		}
		var sessions, status struct{ Structured registry.JSON }
		h.must(json.Unmarshal(h.postRaw(token, "sessions", `{}`), &sessions))
		h.must(json.Unmarshal(h.postRaw(token, "nodes", `{"action":"status"}`), &status))
		agreed(t, token+" directly", sessions.Structured, status.Structured)
	}
}

// agreed fails the test unless both answers have the same devices with the same tools.
func agreed(t *testing.T, name string, sessions, status registry.JSON) {
	t.Helper()
	var a struct {
		Sessions []struct {
			ID    string `json:"session_id"`
			Tools []string
		}
	}
	var b struct {
		Devices []struct {
			ID        string `json:"session_id"`
			Connected bool
			Commands  []string
		}
	}
	if err := json.Unmarshal(sessions.Raw(), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(status.Raw(), &b); err != nil {
		t.Fatal(err)
	}
	var said, shown []string
	for _, s := range a.Sessions {
		said = append(said, fmt.Sprint(s.ID, s.Tools))
	}
	for _, d := range b.Devices {
		if d.Connected {
			shown = append(shown, fmt.Sprint(d.ID, d.Commands))
		}
	}
	slices.Sort(said)
	slices.Sort(shown)
	if !slices.Equal(said, shown) {
		t.Errorf("%s: sessions has %q, nodes status %q", name, said, shown)
	}
}
