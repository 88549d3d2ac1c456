package nodes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Which device is meant is never guessed, and what is missing is named with what there is.
func TestChoiceOfDevice(t *testing.T) {
	h := newHouse(t, options{})
	pixel := h.connect("anna", "phone", "pixel", "notify", "camera_list")
	tab := h.connect("anna", "tablet", "tab", "notify", "canvas_hide")
	h.connect("anna", "copy-1", "twin", "notify")
	h.connect("anna", "copy-2", "twin", "notify")
	h.connect("bob", "spy", "spy", "notify", "location_get")
	for _, c := range []struct {
		tool, args string
		want       registry.Code // empty: it is done
		says       []string      // in the error
		on         *phone
	}{
		{"nodes", `{"action":"camera_list"}`, "", nil, pixel},
		{"nodes", `{"action":"notify","body":"x","deviceId":"tab"}`, "", nil, tab},
		{"nodes", `{"action":"notify","body":"x","deviceId":"tablet"}`, "", nil, tab},
		{"node-invoke", `{"command":"notify","device":"phone"}`, "", nil, pixel},
		{"canvas", `{"action":"hide"}`, "", nil, tab},
		{"canvas", `{"action":"hide","node":"tab"}`, "", nil, tab},
		{"nodes", `{"action":"notify","body":"x"}`, registry.CodeAmbiguousTarget,
			[]string{`"pixel", session phone, called "the phone"`, `"tab", session tablet`, "session copy-1"}, nil},
		{"nodes", `{"action":"notify","body":"x","deviceId":"twin"}`, registry.CodeAmbiguousTarget,
			[]string{"copy-1", "copy-2"}, nil},
		{"nodes", `{"action":"describe"}`, registry.CodeAmbiguousTarget, []string{"phone", "tablet"}, nil},
		{"nodes", `{"action":"camera_list","deviceId":"tab"}`, registry.CodeToolNotFound,
			[]string{`"tab", session tablet`, "canvas_hide, notify"}, nil},
		{"canvas", `{"action":"hide","node":"pixel"}`, registry.CodeToolNotFound, []string{"camera_list, notify"}, nil},
		{"nodes", `{"action":"location_get"}`, registry.CodeToolNotFound,
			[]string{"location_get", `"pixel"`, "camera_list, notify", `"tab"`, "canvas_hide, notify"}, nil},
		{"node-invoke", `{"command":"dance"}`, registry.CodeToolNotFound, []string{"dance", `"pixel"`}, nil},
		{"nodes", `{"action":"notify","body":"x","deviceId":"spy"}`, registry.CodeSessionNotFound,
			[]string{`"spy"`}, nil},
		{"nodes", `{"action":"location_get","deviceId":"spy"}`, registry.CodeSessionNotFound, []string{`"spy"`}, nil},
		{"nodes", `{"action":"describe","deviceId":"spy"}`, registry.CodeSessionNotFound, []string{`"spy"`}, nil},
		{"nodes", `{"action":"notify","body":"x","deviceId":"*"}`, registry.CodeSessionNotFound, nil, nil},
	} {
		_, err := h.talk("anna", "phone", agent.ContextMain, c.tool, c.args)
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		for _, text := range c.says {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v lacks %q", c.args, err, text)
			}
		}
		if err != nil && strings.Contains(err.Error(), "the spy") {
			t.Errorf("%s: %v tells of another user's device", c.args, err)
		}
		if c.on != nil && len(c.on.took()) != 1 {
			t.Errorf("%s did not reach its device", c.args)
		}
	}
	if pixel.took() != nil || tab.took() != nil {
		t.Error("a device was guessed")
	}
}

// A model reaches its person's devices in a conversation with that person, and else only the device it talks through.
// Who calls directly reaches what they see.
func TestWhoReachesWhat(t *testing.T) {
	h := newHouse(t, options{})
	h.connect("anna", "phone", "pixel", "notify")
	h.connect("anna", "tablet", "tab", "notify")
	h.connect("bob", "spy", "spy", "notify")
	h.connect("boss", "desk", "desk", "notify")
	h.connect("shared", "nobody", "lamp", "notify")
	const all = "desk nobody phone spy tablet"
	for _, c := range []struct {
		token, session string
		kind           agent.ContextKind
		want           string
	}{
		{"anna", "phone", agent.ContextMain, "nobody phone tablet"},
		{"anna", "phone", agent.ContextGroup, "phone"},
		{"anna", "phone", agent.ContextSandboxed, "phone"},
		{"anna", "spy", agent.ContextGroup, ""},
		{"anna", "", agent.ContextMain, "nobody phone tablet"},
		{"anna", "", agent.ContextGroup, ""},
		{"guest", "phone", agent.ContextMain, "phone"},
		{"bob", "spy", agent.ContextMain, "nobody spy"},
		{"boss", "desk", agent.ContextMain, "desk nobody"},
		{"shared", "nobody", agent.ContextMain, "nobody"},
		{"shared", "phone", agent.ContextGroup, "phone"},
		{"shared", "", agent.ContextMain, all},
		{"shared", "", agent.ContextGroup, ""},
	} {
		res, err := h.talk(c.token, c.session, c.kind, "nodes", `{"action":"status"}`)
		if got := sessionsIn(res.Output, all); err != nil || got != c.want {
			t.Errorf("a model of %s with %q in %q reaches %q, want %q; %v", c.token, c.session, c.kind, got, c.want,
				err)
		}
	}
	for token, want := range map[string]string{
		"anna": "nobody phone tablet", "bob": "nobody spy", "shared": all, "boss": all,
	} {
		if got := sessionsIn(h.post(token, "nodes", `{"action":"status"}`).Output, all); got != want {
			t.Errorf("%s reaches %q, want %q", token, got, want)
		}
	}
	// What is not reached cannot be called, either.
	for _, kind := range []agent.ContextKind{agent.ContextGroup, agent.ContextSandboxed} {
		for tool, args := range map[string]string{
			"nodes":       `{"action":"notify","body":"x","deviceId":"tab"}`,
			"node-invoke": `{"command":"notify","device":"tab"}`,
			"canvas":      `{"action":"hide","node":"tablet"}`,
		} {
			_, err := h.talk("anna", "phone", kind, tool, args)
			if !errors.Is(err, registry.CodeSessionNotFound) {
				t.Errorf("%s in %q: %v", args, kind, err)
			}
		}
	}
}

// sessionsIn returns which of the sessions a text lists.
func sessionsIn(text, of string) string {
	var found []string
	for s := range strings.FieldsSeq(of) {
		if strings.Contains(text, "session "+s+",") {
			found = append(found, s)
		}
	}
	return strings.Join(found, " ")
}

func TestStatusAndDescribe(t *testing.T) {
	h := newHouse(t, options{})
	if res, err := h.talk("anna", "phone", "", "nodes", `{"action":"status"}`); err != nil || !res.Success ||
		res.Structured.String() != `{"devices":[],"more":false}` {
		t.Errorf("without devices: %+v, %v", res, err)
	}
	for _, args := range []string{`{"action":"describe"}`, `{"action":"location_get"}`} {
		if _, err := h.talk("anna", "phone", "", "nodes", args); !errors.Is(err, registry.CodeSessionNotFound) {
			t.Errorf("%s without devices: %v", args, err)
		}
	}
	h.connect("anna", "phone", "pixel", "notify", "run!")
	res, err := h.talk("anna", "phone", "", "nodes", `{"action":"status","deviceId":"pixel"}`)
	for _, text := range []string{`"pixel", session phone, called "the phone" on "android"`, "connected since 20",
		"notify, run"} {
		if err != nil || !strings.Contains(res.Output, text) {
			t.Errorf("status: %s, %v lacks %q", res.Output, err, text)
		}
	}
	if !strings.Contains(res.Structured.String(), `"connected":true,"paired":false`) {
		t.Errorf("status: %s", res.Structured)
	}
	res, err = h.talk("anna", "phone", "", "nodes", `{"action":"describe"}`)
	if err != nil || !strings.Contains(res.Output, `- run: "does run!", params {`) ||
		!strings.Contains(res.Structured.String(), `"security_level":"user_confirm"`) {
		t.Errorf("describe: %s, %s, %v", res.Output, res.Structured, err)
	}
}

// The call of the device and that of the tool are both in the records, under the same turn.
func TestRecordsOfActions(t *testing.T) {
	h := newHouse(t, options{})
	h.connect("anna", "phone", "pixel", "notify")
	if _, err := h.talk("anna", "phone", "", "nodes", `{"action":"notify","body":"x"}`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var found []registry.Record
	for len(found) < 2 { // records of short calls are written in batches
		page, _, err := h.calls.List(ctx, registry.CallQuery{Tenant: registry.DefaultTenant, Limit: 10})
		h.must(err)
		found = page
		if _, err := h.store.ReadActivity(ctx, registry.DefaultTenant, "", 1, 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for _, rec := range found {
		if rec.Turn != "turn-1" || rec.UserID != "anna" || rec.State != registry.StateSucceeded ||
			(rec.Tool == "notify") != (rec.SessionID == "phone") || (rec.Tool == "nodes") != (rec.Source != "") {
			t.Errorf("%+v", rec)
		}
	}
}
