package nodes_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// action is one action of a tool, and what it has the device do.
type action struct {
	tool, args string
	call       string // of the device; empty: none
	asks       bool   // a model's call needs a person's consent, and so does one of a caller who approves nothing
}

func actions() []action {
	return []action{
		{"nodes", `{"action":"status"}`, "", false},
		{"nodes", `{"action":"describe","deviceId":"pixel"}`, "", false},
		{"nodes", `{"action":"describe"}`, "", false},
		{"nodes", `{"action":"notify","deviceId":"pixel","title":"Tea","body":"is ready"}`,
			`notify{"body":"is ready","title":"Tea"}`, false},
		{"nodes", `{"action":"notify","body":"Tea","title":""}`, `notify{"body":"Tea"}`, false},
		{"nodes", `{"action":"camera_snap","deviceId":"pixel","facing":"front"}`,
			`camera_snap{"facing":"front"}`, true},
		{"nodes", `{"action":"camera_snap","facing":"both"}`, `camera_snap{"facing":"both"}`, true},
		{"nodes", `{"action":"camera_list","deviceId":"phone"}`, `camera_list{}`, true},
		{"nodes", `{"action":"camera_clip","facing":"back","duration":"2s"}`,
			`camera_clip{"duration_ms":2000,"facing":"back"}`, true},
		{"nodes", `{"action":"screen_record","duration":"1m30s"}`, `screen_record{"duration_ms":90000}`, true},
		{"nodes", `{"action":"screen_record","duration":"15"}`, `screen_record{"duration_ms":15000}`, true},
		{"nodes", `{"action":"screen_record","duration":1.5}`, `screen_record{"duration_ms":1500}`, true},
		{"nodes", `{"action":"screen_record"}`, `screen_record{"duration_ms":10000}`, true},
		{"nodes", `{"action":"location_get"}`, `location_get{}`, true},
		{"nodes", `{"action":"run","command":"uname -a"}`, `run{"command":"uname -a"}`, true},
		{"node-invoke", `{"device":"pixel","command":"notify","params":{"body":"x","sound":"gong"}}`,
			`notify{"body":"x","sound":"gong"}`, false},
		{"node-invoke", `{"command":"location_get"}`, `location_get{}`, true},
		{"canvas", `{"action":"present"}`, `canvas_present{}`, false},
		{"canvas", `{"action":"present","node":"pixel","url":"https://example.com/"}`,
			`canvas_present{"url":"https://example.com/"}`, false},
		{"canvas", `{"action":"hide"}`, `canvas_hide{}`, false},
		{"canvas", `{"action":"navigate","url":"http://example.com:8080/a?b=c"}`,
			`canvas_navigate{"url":"http://example.com:8080/a?b=c"}`, false},
		{"canvas", `{"action":"eval","javaScript":"1+1"}`, `canvas_eval{"javaScript":"1+1"}`, true},
		{"canvas", `{"action":"snapshot","quality":80}`, `canvas_snapshot{"quality":80}`, false},
		{"canvas", `{"action":"a2ui_push","jsonl":"{\"a\":1}\n\n{\"b\":2}\n"}`,
			`canvas_a2ui_push{"jsonl":"{\"a\":1}\n\n{\"b\":2}\n"}`, false},
		{"canvas", `{"action":"a2ui_reset"}`, `canvas_a2ui_reset{}`, false},
	}
}

// phoneActions are actions that phones have and the machines of docs/devices.md have not.
func phoneActions() []action {
	return []action{
		{"nodes", `{"action":"screen_snapshot"}`, `screen_snapshot{}`, true},
		{"nodes", `{"action":"photos_latest","limit":2}`, `photos_latest{"limit":2}`, true},
		{"nodes", `{"action":"notifications_list","deviceId":"pixel"}`, `notifications_list{}`, true},
		{"nodes", `{"action":"device_info"}`, `device_info{}`, false},
		{"nodes", `{"action":"device_status"}`, `device_status{}`, false},
		{"nodes", `{"action":"device_health"}`, `device_health{}`, false},
		{"nodes", `{"action":"device_permissions"}`, `device_permissions{}`, false},
		{"nodes", `{"action":"which","bins":["git"]}`, `which{"bins":["git"]}`, false},
	}
}

// Each action of the tools reaches the device as the call of its conventional tool: through a conversation of each
// kind, and over HTTP. A person is asked about the device's call, and about nothing else.
func TestActions(t *testing.T) {
	h := newHouse(t, options{})
	pixel := h.connect("anna", "phone", "pixel", append(allCommands(), phoneCommands()...)...)
	h.connect("bob", "spy", "spy", allCommands()...) // another user's device is no reason to ask which one
	for _, a := range append(actions(), phoneActions()...) {
		for _, kind := range policy.Contexts() {
			res, err := h.talk("anna", "phone", kind, a.tool, a.args)
			h.check(a, "in "+string(kind), res.Success, res.Output, err, pixel.took())
			if a.call != "" && strings.Contains(a.args, "camera_snap") && len(res.Parts) != 1 {
				t.Errorf("%s: %d pictures", a.args, len(res.Parts))
			}
		}
		said := h.post("anna", a.tool, a.args)
		var err error
		if said.Code != "" {
			err = registry.Errorf(said.Code, "%s", said.Detail)
		}
		h.check(a, "over HTTP", said.Success, said.Output, err, pixel.took())
	}
}

// check compares what an action came to with what it should.
func (h *house) check(a action, where string, success bool, output string, err error, calls []string) {
	h.Helper()
	var want, asked []string
	if a.call != "" {
		want = []string{a.call}
		if a.asks {
			asked = []string{a.call[:strings.IndexByte(a.call, '{')]}
		}
	}
	if err != nil || !success || a.call != "" && !strings.HasPrefix(output, "did ") || !slices.Equal(calls, want) {
		h.Errorf("%s %s %s: %q, %v; the device was called %v", a.tool, a.args, where, output, err, calls)
	}
	if heard := h.people.heard(); !slices.Equal(heard, asked) {
		h.Errorf("%s %s %s: asked about %v, want %v", a.tool, a.args, where, heard, asked)
	}
}

// A person's no ends the action before the device hears of it, and the model reads why.
func TestDeniedActions(t *testing.T) {
	h := newHouse(t, options{})
	pixel := h.connect("anna", "phone", "pixel", allCommands()...)
	h.people.allow = false
	for _, a := range actions() {
		if !a.asks {
			continue
		}
		_, err := h.talk("anna", "phone", agent.ContextMain, a.tool, a.args)
		if !errors.Is(err, registry.CodeApprovalDenied) || !strings.Contains(err.Error(), "A person denied this call") {
			t.Errorf("%s: %v", a.args, err)
		}
		if said := h.post("anna", a.tool, a.args); said.Code != registry.CodeApprovalDenied {
			t.Errorf("%s over HTTP: %+v", a.args, said)
		}
	}
	if calls := pixel.took(); calls != nil {
		t.Errorf("the device was called %v", calls)
	}
}

// The policy of a device's tool holds however it is reached.
func TestPolicyOfTheDevicesTool(t *testing.T) {
	h := newHouse(t, options{rules: "version: 1\ntools:\n" +
		"  - {id: no-snaps, names: camera_snap, forbid: asked by a model}\n" +
		"  - {id: alone, names: location_get, contexts: main}\n" +
		"  - {id: never, names: notify, forbid: always}\n"})
	pixel := h.connect("anna", "phone", "pixel", "camera_snap", "location_get", "notify", "run#", "camera_list")
	for _, c := range []struct {
		tool, args string
		kind       agent.ContextKind
		want       registry.Code
	}{
		{"nodes", `{"action":"camera_snap"}`, "", registry.CodePolicyDenied},
		{"node-invoke", `{"command":"camera_snap"}`, "", registry.CodePolicyDenied},
		{"nodes", `{"action":"location_get"}`, "", ""},
		{"nodes", `{"action":"location_get"}`, agent.ContextGroup, registry.CodePolicyDenied},
		{"node-invoke", `{"command":"location_get"}`, agent.ContextSandboxed, registry.CodePolicyDenied},
		{"nodes", `{"action":"notify","body":"x"}`, "", registry.CodePolicyDenied},
		{"nodes", `{"action":"run","command":"id"}`, "", registry.CodeForbidden},
	} {
		_, err := h.talk("anna", "phone", c.kind, c.tool, c.args)
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
			t.Errorf("%s in %q: %v, want %q", c.args, c.kind, err, c.want)
		}
	}
	// An admin may run it, an admin's model may not.
	if _, err := h.talk("shared", "phone", "", "nodes", `{"action":"run","command":"id"}`); !errors.Is(err,
		registry.CodePolicyDenied) {
		t.Errorf("an admin's model: %v", err)
	}
	if said := h.post("shared", "nodes", `{"action":"run","command":"id"}`); !said.Success {
		t.Errorf("an admin: %+v", said)
	}
	if said := h.post("guest", "nodes", `{"action":"location_get"}`); said.Code != registry.CodePolicyDenied {
		t.Errorf("credentials for groups: %+v", said)
	}
	if calls := pixel.took(); !slices.Equal(calls, []string{`location_get{}`, `run{"command":"id"}`}) {
		t.Errorf("the device was called %v", calls)
	}
	// What may not be called is not told of, either.
	res, err := h.talk("anna", "phone", agent.ContextGroup, "nodes", `{"action":"describe"}`)
	if err != nil || !strings.Contains(res.Output, "camera_list") || strings.Contains(res.Output, "location_get") ||
		strings.Contains(res.Output, "notify") || strings.Contains(res.Output, "run") {
		t.Errorf("%s, %v", res.Output, err)
	}
}

// What is wrong with the arguments is said before any device is asked, and everything together.
func TestWrongArguments(t *testing.T) {
	h := newHouse(t, options{})
	pixel := h.connect("anna", "phone", "pixel", allCommands()...)
	deep := strings.Repeat("x", 300<<10)
	for _, c := range []struct{ tool, args, says string }{
		{"nodes", `{}`, "action"},
		{"nodes", `{"action":"dance"}`, "action"},
		{"nodes", `{"action":"notify"}`, "needs body"},
		{"nodes", `{"action":"notify","body":""}`, "needs body"},
		{"nodes", `{"action":"run"}`, "needs command"},
		{"nodes", `{"action":"which"}`, "needs bins"},
		{"nodes", `{"action":"which","bins":[]}`, "bins"},
		{"nodes", `{"action":"photos_latest","limit":17}`, "limit"},
		{"nodes", `{"action":"camera_snap","facing":"up"}`, "facing"},
		{"nodes", `{"action":"camera_clip","duration":"an hour"}`, "duration"},
		{"nodes", `{"action":"camera_clip","duration":"1h"}`, "duration"},
		{"nodes", `{"action":"camera_clip","duration":"-5s"}`, "duration"},
		{"nodes", `{"action":"camera_clip","duration":"NaN"}`, "duration"},
		{"nodes", `{"action":"screen_record","duration":1e300}`, "duration"},
		{"nodes", `{"action":"screen_record","duration":0}`, "duration"},
		{"nodes", `{"action":"approve"}`, "code"},
		{"nodes", `{"action":"status","extra":1}`, "extra"},
		{"node-invoke", `{"device":"pixel"}`, "command"},
		{"node-invoke", `{"command":"no such name"}`, "command"},
		{"node-invoke", `{"command":"notify","params":[]}`, "params"},
		{"canvas", `{"action":"navigate"}`, "needs url"},
		{"canvas", `{"action":"eval"}`, "needs javaScript"},
		{"canvas", `{"action":"snapshot","quality":0}`, "quality"},
		{"canvas", `{"action":"snapshot","quality":101}`, "quality"},
		{"canvas", `{"action":"a2ui_push"}`, "needs jsonl"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{} []"}`, "line 1"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{}\n[]"}`, "line 2"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{}\n{\"a\":1,\"a\":2}"}`, "line 2"},
		{"canvas", `{"action":"a2ui_push","jsonl":"\n\n"}`, "no line"},
		{"canvas", `{"action":"a2ui_push","jsonl":"` + strings.Repeat(`{}\n`, 1001) + `"}`, "1000 lines"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{\"a\":\"` + deep[:70<<10] + `\"}"}`, "line 1"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{\"a\":\"` + deep + `\"}"}`, "jsonl"},
	} {
		_, err := h.talk("anna", "phone", "", c.tool, c.args)
		said := fmt.Sprintf("%v %v", err, registry.AsError(err).Violations)
		if !errors.Is(err, registry.CodeInvalidArguments) || !strings.Contains(said, c.says) {
			t.Errorf("%s %.80s: %s", c.tool, c.args, said)
		}
	}
	if calls := pixel.took(); calls != nil || h.people.heard() != nil {
		t.Errorf("the device was called %v", calls)
	}
}

// No canvas is told to load what is not of the web, or is of a private network, whichever tool is used.
func TestURLsOfCanvases(t *testing.T) {
	h := newHouse(t, options{})
	pixel := h.connect("anna", "phone", "pixel", allCommands()...)
	for _, url := range []string{
		"file:///etc/passwd", "data:text/html,x", "blob:https://example.com/1", "view-source:https://example.com",
		"javascript:alert(1)", "about:blank", "http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/",
		"http://localhost:8080/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://10.0.0.1/",
		"http://192.168.1.1/",
		"http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://user@example.com/",
	} {
		for tool, args := range map[string]string{
			"canvas":      `{"action":"navigate","url":"` + url + `"}`,
			"node-invoke": `{"command":"canvas_present","params":{"url":"` + url + `"}}`,
			"other case":  `{"command":"canvas_navigate","params":{"url":"https://example.com","Url":"` + url + `"}}`,
		} {
			if tool == "other case" {
				tool = "node-invoke"
			}
			if _, err := h.talk("anna", "phone", "", tool, args); !errors.Is(err, registry.CodeInvalidArguments) {
				t.Errorf("%s %s: %v", tool, args, err)
			}
		}
	}
	if calls := pixel.took(); calls != nil {
		t.Errorf("the device was called %v", calls)
	}
	h = newHouse(t, options{private: true})
	h.connect("anna", "phone", "pixel", allCommands()...)
	for url, ok := range map[string]bool{"http://192.168.1.1/": true, "http://169.254.169.254/": false} {
		_, err := h.talk("anna", "phone", "", "canvas", `{"action":"present","url":"`+url+`"}`)
		if (err == nil) != ok {
			t.Errorf("%s where private addresses are allowed: %v", url, err)
		}
	}
}
