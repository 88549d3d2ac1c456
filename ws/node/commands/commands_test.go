package commands_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/commands"
)

var update = flag.Bool("update", false, "write the golden files")

// Commands that the apps and the node host of 2026.9.6 declare. The node host's list was recorded.
func hostCommands() []string {
	return strings.Fields("browser.proxy browser.proxy.upload.v1 desktop.stream dir.fetch dir.list file.create " +
		"file.fetch file.stat file.write fs.listDir mcp.tools.call.v1 ollama.chat ollama.models " +
		"system.execApprovals.get system.execApprovals.set system.run system.run.prepare system.which " +
		"terminal.upload workspace.memory workspace.skills")
}

func phoneCommands() []string {
	return strings.Fields("canvas.present canvas.hide canvas.navigate canvas.eval canvas.snapshot canvas.a2ui.push " +
		"canvas.a2ui.pushJSONL canvas.a2ui.reset system.notify camera.list camera.snap camera.clip camera.ptz.status " +
		"camera.ptz.control location.get device.status device.info device.permissions device.health device.apps " +
		"notifications.list notifications.actions photos.latest contacts.search contacts.add calendar.events " +
		"calendar.add reminders.list reminders.add motion.activity motion.pedometer health.summary sms.send " +
		"sms.search callLog.search screen.record screen.snapshot mobile.ui.observe mobile.ui.act computer.act " +
		"watch.status watch.notify chat.push talk.ptt.start talk.ptt.stop talk.ptt.cancel talk.ptt.once")
}

func catalogOf(platform string, names ...string) *commands.Catalog {
	return commands.New(commands.Node{Platform: platform, Commands: names}, nil, commands.Rules{})
}

func everything(platform string) *commands.Catalog {
	return catalogOf(platform, append(hostCommands(), phoneCommands()...)...)
}

func mustJSON(text string) registry.JSON {
	if text == "" {
		return registry.JSON{}
	}
	return registry.MustJSON(text)
}

// The golden file has every definition, and each is admitted. A changed definition has to be approved again at every
// paired node.
func TestDefinitions(t *testing.T) {
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	admission := agent.NewAdmission(policy, schema.NewValidator(), agent.AdmissionLimits{}, "nodes", "canvas", "exec")
	var got bytes.Buffer
	bytesOfAll := 0
	var names agent.Namesakes
	for _, tool := range everything("iOS 26.1").Tools() {
		var spec registry.ToolSpec
		if err := json.Unmarshal(tool.Definition, &spec); err != nil {
			t.Fatal(tool.Name, err)
		}
		admitted, err := admission.Admit(t.Context(), spec, agent.SessionTools{Names: &names})
		if err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		if admitted.Name != tool.Name {
			t.Errorf("%s is defined as %s", tool.Name, admitted.Name)
		}
		if len([]rune(spec.Description)) < 10 || admitted.Description != spec.Description {
			t.Errorf("%s: %q becomes %q", tool.Name, spec.Description, admitted.Description)
		}
		bytesOfAll += admitted.Size()
		text, _ := json.MarshalIndent(map[string]any{"command": tool.Command, "tool": tool.Definition}, "", " ")
		got.Write(append(text, '\n'))
	}
	if bytesOfAll > 64<<10 {
		t.Errorf("the definitions have %d bytes", bytesOfAll)
	}
	golden := filepath.Join("testdata", "definitions.json")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the definitions differ from %s, %v: run with -update if that is meant", golden, err)
	}
}

// What OpenClaw's gateway enables only on demand needs a person here, and what it keeps for its admins an admin.
func TestLevels(t *testing.T) {
	levels := make(map[string]registry.SecurityLevel)
	for _, tool := range everything("android").Tools() {
		var spec registry.ToolSpec
		if err := json.Unmarshal(tool.Definition, &spec); err != nil {
			t.Fatal(err)
		}
		levels[tool.Command] = spec.SecurityLevel
	}
	for level, names := range map[registry.SecurityLevel]string{
		registry.SecurityUserConfirm: "camera.snap camera.clip camera.ptz.control screen.record contacts.add " +
			"calendar.add reminders.add health.summary sms.send sms.search system.run computer.act " +
			"location.get file.write",
		registry.SecurityAdminOnly: "browser.proxy fs.listDir terminal.upload system.execApprovals.get " +
			"system.execApprovals.set",
		"": "device.info system.notify canvas.hide system.which",
	} {
		for _, name := range strings.Fields(names) {
			if got, ok := levels[name]; !ok || got != level {
				t.Errorf("%s: %q, want %q", name, got, level)
			}
		}
	}
}

// Private commands, and those that stream to OpenClaw's gateway, are no tools.
func TestLeftOut(t *testing.T) {
	c := commands.New(commands.Node{Commands: append(hostCommands(), "worker.launch.v1", "worker.future.v9", "", "a b",
		"system.which", strings.Repeat("x", 500), "canvas.a2ui.push", "canvas.a2ui.pushJSONL")}, nil, commands.Rules{})
	var left []string
	for _, l := range c.LeftOut() {
		if l.Reason == "" || len(l.Name) > 200 {
			t.Errorf("%+v", l)
		}
		left = append(left, l.Name[:min(len(l.Name), 30)])
	}
	slices.Sort(left)
	want := []string{
		"browser.proxy.upload.v1", "canvas.a2ui.push", "desktop.stream", "file.create", "mcp.tools.call.v1",
		"system.run.prepare", "worker.future.v9", "worker.launch.v1", "workspace.memory", "workspace.skills",
		strings.Repeat("x", 30),
	}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left out %q, want %q", left, want)
	}
	if _, err := c.Invoke("worker_launch_v1", commands.Call{}); !registryIs(err, registry.CodeToolNotFound) {
		t.Errorf("a private command: %v", err)
	}
}

func registryIs(err error, code registry.Code) bool {
	return err != nil && registry.AsError(err).Code == code
}

// Unknown commands become tools about which a person is asked, whatever their names are, and always by the same names.
func TestUnknownCommands(t *testing.T) {
	names := []string{"acme.do", "acme_do", "Acme.Do", "acme.größe", ".hidden", "camera.snap", "camera_snap", "1st",
		strings.Repeat("long.", 20), "acme.do"}
	var first []string
	for range 3 {
		c := catalogOf("linux", names...)
		var tools []string
		for _, tool := range c.Tools() {
			tools = append(tools, tool.Name+" "+tool.Command)
			if !registry.ValidToolName(tool.Name) {
				t.Errorf("%q is no valid name", tool.Name)
			}
		}
		if first == nil {
			first = tools
		} else if !slices.Equal(tools, first) {
			t.Errorf("%q, then %q", first, tools)
		}
		slices.Reverse(names)
	}
	if len(first) != 9 || !slices.Contains(first, "camera_snap camera.snap") {
		t.Errorf("%q", first)
	}
	c := catalogOf("linux", "acme.do")
	inv, err := c.Invoke("acme_do", commands.Call{Args: mustJSON(`{"b":1,"a":[null]}`)})
	if err != nil || inv.Command != "acme.do" || string(inv.Params) != `{"a":[null],"b":1}` {
		t.Errorf("%s %s %v", inv.Command, inv.Params, err)
	}
}

// call is a call of a tool, and what the node gets.
type call struct{ tool, args, command, params string }

func TestInvocations(t *testing.T) {
	for _, tt := range []call{
		{"notify", `{"body":"x"}`, "system.notify", `{"title":"","body":"x"}`},
		{"notify", `{"title":"a","body":"x","priority":"timeSensitive"}`, "system.notify",
			`{"title":"a","body":"x","priority":"timeSensitive"}`},
		{"camera_list", ``, "camera.list", `{}`},
		{"camera_snap", `{"facing":"back","quality":80,"max_width":800,"device_id":null}`, "camera.snap",
			`{"maxWidth":800,"quality":0.8,"facing":"back"}`},
		{"camera_clip", `{"duration_ms":2000,"facing":"front","include_audio":false}`, "camera.clip",
			`{"facing":"front","durationMs":2000,"includeAudio":false}`},
		{"camera_ptz_control", `{"device_id":"a","operation":"set","pan_degrees":10,"zoom_percent":40}`,
			"camera.ptz.control", `{"deviceId":"a","operation":"set","target":{"panDegrees":10,"zoomPercent":40}}`},
		{"camera_ptz_control", `{"device_id":"a","operation":"move","tilt_degrees":-2}`, "camera.ptz.control",
			`{"deviceId":"a","operation":"move","delta":{"tiltDegrees":-2}}`},
		{"camera_ptz_control", `{"device_id":"a","operation":"home"}`, "camera.ptz.control",
			`{"deviceId":"a","operation":"home"}`},
		{"photos_latest", `{"limit":2}`, "photos.latest", `{"limit":2}`},
		{"screen_record", `{"duration_ms":5000,"fps":10,"screen_index":1}`, "screen.record",
			`{"durationMs":5000,"fps":10,"screenIndex":1}`},
		{"screen_snapshot", `{}`, "screen.snapshot", `{}`},
		{"computer_act", `{"action":"left_click","x":1,"y":2,"windowRef":"w"}`, "computer.act",
			`{"action":"left_click","x":1,"y":2,"windowRef":"w"}`},
		{"mobile_ui_act", `{"action":{"type":"tap","x":1,"y":2}}`, "mobile.ui.act",
			`{"action":{"type":"tap","x":1,"y":2}}`},
		{"canvas_present", `{"url":"https://example.com/"}`, "canvas.present", `{"url":"https://example.com/"}`},
		{"canvas_eval", `{"javaScript":"1+1"}`, "canvas.eval", `{"javaScript":"1+1"}`},
		{"canvas_snapshot", `{"quality":50,"format":"jpeg"}`, "canvas.snapshot", `{"quality":0.5,"format":"jpeg"}`},
		{"canvas_a2ui_push", `{"jsonl":"{}\n{}"}`, "canvas.a2ui.pushJSONL", `{"jsonl":"{}\n{}"}`},
		{"location_get", `{"max_age_ms":1000,"desired_accuracy":"coarse"}`, "location.get",
			`{"maxAgeMs":1000,"desiredAccuracy":"coarse"}`},
		{"notifications_actions", `{"key":"k","action":"reply","reply_text":"ok"}`, "notifications.actions",
			`{"key":"k","action":"reply","replyText":"ok"}`},
		{"contacts_add", `{"given_name":"A","phone_numbers":["1"]}`, "contacts.add",
			`{"givenName":"A","phoneNumbers":["1"]}`},
		{"calendar_add", `{"title":"t","start":"2026-01-31T08:00:00Z","end":"2026-01-31T09:00:00Z"}`, "calendar.add",
			`{"title":"t","startISO":"2026-01-31T08:00:00Z","endISO":"2026-01-31T09:00:00Z"}`},
		{"reminders_add", `{"title":"t","due":"2026-01-31T08:00:00Z"}`, "reminders.add",
			`{"title":"t","dueISO":"2026-01-31T08:00:00Z"}`},
		{"health_summary", `{}`, "health.summary", `{"period":"today"}`},
		{"sms_send", `{"to":"+1","message":"hi"}`, "sms.send", `{"to":"+1","message":"hi"}`},
		{"call_log_search", `{"limit":5,"number":"1"}`, "callLog.search", `{"limit":5,"number":"1"}`},
		{"which", `{"bins":["git"]}`, "system.which", `{"bins":["git"]}`},
		{"exec_approvals_set", `{"file":{"version":1},"base_hash":"h"}`, "system.execApprovals.set",
			`{"file":{"version":1},"baseHash":"h"}`},
		{"file_fetch", `{"path":"/a","max_bytes":10}`, "file.fetch", `{"path":"/a","maxBytes":10}`},
		{"file_write", `{"path":"/a","text":"hé","overwrite":true}`, "file.write",
			`{"path":"/a","overwrite":true,"contentBase64":"aMOp"}`},
		{"file_write", `{"path":"/a","content_base64":"AAE="}`, "file.write", `{"path":"/a","contentBase64":"AAE="}`},
		{"fs_list_dir", `{}`, "fs.listDir", `{}`},
		{"browser_proxy", `{"method":"GET","path":"/tabs"}`, "browser.proxy", `{"method":"GET","path":"/tabs"}`},
		{"ollama_chat", `{"model":"m","prompt":"p","max_tokens":5}`, "ollama.chat",
			`{"model":"m","prompt":"p","maxTokens":5}`},
	} {
		inv, err := everything("android").Invoke(tt.tool, commands.Call{Args: mustJSON(tt.args)})
		if err != nil || inv.Command != tt.command || string(inv.Params) != tt.params {
			t.Errorf("%s %s: %s %s, %v", tt.tool, tt.args, inv.Command, inv.Params, err)
		}
	}
	inv, err := catalogOf("iOS", "canvas.a2ui.push").Invoke("canvas_a2ui_push",
		commands.Call{Args: mustJSON(`{"jsonl":"{\"a\":1}\n\n{\"b\":2}\n"}`)})
	if err != nil || string(inv.Params) != `{"messages":[{"a":1},{"b":2}]}` {
		t.Errorf("%s, %v", inv.Params, err)
	}
	inv, err = everything("linux").Invoke("camera_snap", commands.Call{Args: mustJSON(`{"facing":"both"}`)})
	if err != nil || string(inv.Params) != `{}` {
		t.Errorf("Linux has no facing: %s, %v", inv.Params, err)
	}
}

func TestWrongArguments(t *testing.T) {
	for tool, args := range map[string]string{
		"camera_snap":        `{"facing":"both","device_id":"a"}`,
		"camera_ptz_control": `{"operation":"set","device_id":"a"}`,
		"file_write":         `{"path":"/a"}`,
	} {
		_, err := everything("ios").Invoke(tool, commands.Call{Args: mustJSON(args)})
		if !registryIs(err, registry.CodeInvalidArguments) ||
			registry.AsError(err).Dispatched != registry.DispatchedNo {
			t.Errorf("%s %s: %v", tool, args, err)
		}
	}
	lines := commands.Call{Args: mustJSON(`{"jsonl":"[]"}`)}
	_, err := catalogOf("ios", "canvas.a2ui.push").Invoke("canvas_a2ui_push", lines)
	if !registryIs(err, registry.CodeInvalidArguments) {
		t.Errorf("lines that are no objects: %v", err)
	}
}

var picture = append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{0, 0xff}, 100)...)

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestResults(t *testing.T) {
	photo := `{"format":"png","base64":"` + encoded(picture) + `","width":3,"height":2}`
	for _, tt := range []struct {
		tool, payload, output, structured string
		parts                             string // name and type of each
	}{
		{"device_info", `{"a":1}`, `{"a":1}`, `{"a":1}`, ""},
		{"notify", ``, "Done.", "", ""},
		{"notify", `null`, "Done.", "", ""},
		{"which", `{"bins":{"git":"/usr/bin/git"}}`, `{"bins":{"git":"/usr/bin/git"}}`,
			`{"bins":{"git":"/usr/bin/git"}}`, ""},
		{"camera_list", `{"devices":[{"id":"1","name":"Back","position":"back","deviceType":"wide"}]}`,
			`[{"id":"1","facing":"back","name":"Back"}]`, `[{"id":"1","facing":"back","name":"Back"}]`, ""},
		{"camera_snap", photo, "camera_snap: camera_snap.png, image/png, 208 bytes",
			`{"format":"png","part":0,"width":3,"height":2}`, "camera_snap.png image/png"},
		{"camera_clip", `{"format":"mp4","base64":"AAEC","durationMs":5}`, "camera_clip: camera_clip.mp4, " +
			"video/mp4, 3 bytes",
			`{"format":"mp4","part":0,"durationMs":5}`, "camera_clip.mp4 video/mp4"},
		{"photos_latest", `{"photos":[` + photo + `,` + photo + `]}`,
			`{"photos":[{"format":"png","part":0,"width":3,"height":2},{"format":"png","part":1,"width":3,"height":2}]}`,
			`{"photos":[{"format":"png","part":0,"width":3,"height":2},{"format":"png","part":1,"width":3,"height":2}]}`,
			"photos_latest.png image/png, photos_latest_2.png image/png"},
		{"location_get", `{"lat":48.2,"lon":16.3,"accuracyMeters":12.5,"isPrecise":true,` +
			`"source":"gps","altitudeMeters":null}`,
			`{"latitude":48.2,"longitude":16.3,"accuracy_m":12.5,"precise":true,"source":"gps"}`,
			`{"latitude":48.2,"longitude":16.3,"accuracy_m":12.5,"precise":true,"source":"gps"}`, ""},
		{"file_fetch", `{"ok":true,"path":"/tmp/a.md","size":2,"mimeType":"text/markdown","base64":"aGk=","sha256":"x"}`,
			"hi", `{"ok":true,"path":"/tmp/a.md","size":2,"mimeType":"text/markdown","part":0,"sha256":"x"}`,
			"a.md text/markdown"},
		{"dir_fetch", `{"ok":true,"tarBase64":"H4sI"}`, "dir_fetch: dir_fetch.tar.gz, application/gzip, 3 bytes",
			`{"ok":true,"part":0}`, "dir_fetch.tar.gz application/gzip"},
		{"run", `{"exitCode":3,"timedOut":false,"success":false,"stdout":"out\n","stderr":"e","error":null}`,
			`{"exit_code":3,"stdout":"out\n","stderr":"e","cut":false}`,
			`{"exit_code":3,"stdout":"out\n","stderr":"e","cut":false}`, ""},
		{"run", `{"exitCode":0,"stdout":"x\n... (truncated)","stderr":""}`,
			`{"exit_code":0,"stdout":"x\n... (truncated)","stderr":"","cut":true}`,
			`{"exit_code":0,"stdout":"x\n... (truncated)","stderr":"","cut":true}`, ""},
	} {
		res, err := everything("macos").Result(tt.tool, mustJSON(tt.payload))
		var parts []string
		for _, p := range res.Parts {
			if field, must := p.Check(); field != "" || p.Size != int64(len(p.Data)) {
				t.Errorf("%s: part: %s %s", tt.tool, field, must)
			}
			parts = append(parts, p.Name+" "+p.MIMEType)
		}
		if err != nil || !res.Success || res.Output != tt.output || res.Structured.String() != tt.structured ||
			strings.Join(parts, ", ") != tt.parts {
			t.Errorf("%s %.80s: %q %s %q, %v", tt.tool, tt.payload, res.Output, res.Structured, parts, err)
		}
	}
}

// Payloads that are not what a command returns are errors, and failures inside of payloads are failures.
func TestWrongPayloads(t *testing.T) {
	for _, tt := range []struct{ tool, payload, says string }{
		{"camera_snap", `{"format":"png","base64":"***"}`, "base64"},
		{"camera_snap", `{"format":"png","base64":""}`, "base64"},
		{"camera_list", `{"devices":1}`, "camera_list"},
		{"location_get", `{}`, "location_get"},
		{"location_get", `"here"`, "location_get"},
		{"run", `[]`, "run"},
		{"run", `{"stdout":"x","error":"node exec working directory does not exist"}`, "did not run"},
		{"run", `{"timedOut":true,"stdout":"so far"}`, "killed"},
		{"file_fetch", `{"ok":false,"code":"NOT_FOUND","message":"file not found"}`, "NOT_FOUND: file not found"},
		{"sms_send", `{"ok":false,"to":"1","error":"SMS_PERMISSION_REQUIRED: grant SMS permission"}`, "permission sms"},
	} {
		c := everything("linux")
		step := commands.After(c, tt.tool, commands.Invocation{}, commands.Answer{Payload: mustJSON(tt.payload)})
		if step.Invoke != nil || step.Ask != "" || step.Result.Success ||
			!strings.Contains(step.Result.Output, tt.says) {
			t.Errorf("%s %s: %+v", tt.tool, tt.payload, step)
		}
	}
}

// A failure says what the node said, and what to do next.
func TestFailures(t *testing.T) {
	for _, tt := range []struct{ tool, code, message, says, next string }{
		{"camera_snap", "NODE_BACKGROUND_UNAVAILABLE", "command requires foreground", "command requires foreground",
			"open the app"},
		{"camera_snap", "CAMERA_DISABLED", "CAMERA_DISABLED: enable Camera in Settings", "enable Camera",
			"switch this on"},
		{"camera_snap", "INVALID_REQUEST", "Error: CAMERA_DISABLED: enable Camera", ": CAMERA_DISABLED",
			"switch this on"},
		{"camera_snap", "UNAVAILABLE", "CAMERA_PERMISSION_REQUIRED: grant Camera permission", "grant Camera",
			"the permission camera"},
		{"location_get", "LOCATION_TIMEOUT", "", "LOCATION_TIMEOUT", "max_age_ms"},
		{"camera_clip", "PAYLOAD_TOO_LARGE", "clip too large", "PAYLOAD_TOO_LARGE: clip too large", "shorter"},
		{"run", "SYSTEM_RUN_DENIED", "SYSTEM_RUN_DISABLED: security=deny", "security=deny", "switched off"},
		{"run", "SYSTEM_RUN_DENIED", "SYSTEM_RUN_DENIED: allowlist miss", "allowlist miss", "exec approvals"},
		{"run", "INVALID_REQUEST", "SYSTEM_RUN_DENIED: approval cannot safely bind this command", "bind",
			"without a shell"},
		{"ollama_chat", "INVALID_REQUEST", "node command requires duplex transport: x", "duplex",
			"OpenClaw's own gateway"},
		{"which", "UNAVAILABLE", "command not supported", "not supported", "Update OpenClaw"},
		{"which", "", "", "did not say why", ""},
		{"which", "X\x1b[2J", "a\x00b\u202e", "X", ""},
	} {
		res := everything("linux").Fail(tt.tool, commands.Failure{Code: tt.code, Message: tt.message})
		if res.Success || !strings.Contains(res.Output, tt.says) || !strings.Contains(res.Output, tt.next) ||
			strings.ContainsAny(res.Output, "\x1b\x00\u202e") {
			t.Errorf("%s %s: %q", tt.tool, tt.code, res.Output)
		}
	}
	long := everything("linux").Fail("which", commands.Failure{Message: strings.Repeat("é", 100_000)})
	if len(long.Output) > 5000 {
		t.Errorf("a failure has %d bytes", len(long.Output))
	}
}

// Both cameras take two invocations, and their pictures are parts of one result.
func TestBothCameras(t *testing.T) {
	c := everything("iOS")
	inv, err := c.Invoke("camera_snap", commands.Call{Args: mustJSON(`{"facing":"both","quality":50}`)})
	if err != nil || string(inv.Params) != `{"quality":0.5,"facing":"front"}` {
		t.Fatalf("%s %v", inv.Params, err)
	}
	photo := mustJSON(`{"format":"jpg","base64":"/9j/","width":1,"height":1}`)
	step := commands.After(c, "camera_snap", inv, commands.Answer{Payload: photo})
	if step.Invoke == nil || string(step.Invoke.Params) != `{"quality":0.5,"facing":"back"}` {
		t.Fatalf("%+v", step)
	}
	step = commands.After(c, "camera_snap", *step.Invoke, commands.Answer{Payload: photo})
	if r := step.Result; !r.Success || len(r.Parts) != 2 || r.Parts[0].Name != "front.jpg" ||
		r.Parts[1].Name != "back.jpg" {
		t.Errorf("%+v", step)
	}
	failed := commands.Answer{Failure: &commands.Failure{Code: "CAMERA_DISABLED"}}
	if step = commands.After(c, "camera_snap", inv, failed); step.Invoke != nil || step.Result.Success {
		t.Errorf("after a failure: %+v", step)
	}
}

// A policy names tools as nodes offer them.
func TestToolNames(t *testing.T) {
	for _, tool := range everything("linux").Tools() {
		if got := commands.ToolName(tool.Command); got != tool.Name {
			t.Errorf("%s: %s, want %s", tool.Command, got, tool.Name)
		}
	}
	for command, want := range map[string]string{
		"acme.doIt": "acme_do_it", "Acme.Do": "acme_do", "worker.launch.v1": "", "system.run.prepare": "", "": "",
		"canvas.a2ui.push": "canvas_a2ui_push",
	} {
		if got := commands.ToolName(command); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	many := map[string]bool{"camera": true, "screenRecording": false, "bad name": true, "": true,
		strings.Repeat("x", 100): true}
	labels := commands.Labels(commands.Node{Permissions: many})
	if len(labels) != 2 || labels["permission/camera"] != "granted" ||
		labels["permission/screenRecording"] != "denied" {
		t.Errorf("%v", labels)
	}
	for i := range 100 {
		many["p"+strings.Repeat("i", i%30)] = true
	}
	s := registry.Session{Labels: commands.Labels(commands.Node{Permissions: many})}
	if err := s.ValidateAttributes(); err != nil || len(s.Labels) > 24 {
		t.Errorf("%d labels, %v", len(s.Labels), err)
	}
}

// No answer and no arguments of a node or a caller break the catalog.
func FuzzCatalog(f *testing.F) {
	f.Add("camera_snap", `{"facing":"both"}`, `{"format":"jpg","base64":"/9j/"}`, "SYSTEM_RUN_DENIED",
		"approval required")
	f.Add("run", `{"command":"id"}`, `{"plan":{"argv":["id"]},"execPolicy":{"security":"full","ask":"off"}}`, "", "")
	f.Add("photos_latest", `{}`, `{"photos":[{"base64":"AAAA"},{"base64":1}]}`, "X_DISABLED", "")
	f.Add("file_fetch", `{"path":"/"}`, `{"ok":false,"code":"A"}`, "", "A: b")
	f.Add("acme_do", `{"a":{}}`, `[[[{"base64":"AA"}]]]`, "", "")
	f.Add("mcp_echo", `{"a":{}}`, `{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`, "", "")
	c := commands.New(commands.Node{Platform: "linux", Commands: append(append(hostCommands(), phoneCommands()...),
		"acme.do")}, []json.RawMessage{[]byte(`{"pluginId":"mcp","name":"mcp_echo","description":"d",` +
		`"command":"mcp.tools.call.v1","mcp":{"server":"s","tool":"t"}}`)}, commands.Rules{})
	f.Fuzz(func(t *testing.T, tool, args, answer, code, message string) {
		a, err := registry.ParseJSON([]byte(args))
		if err != nil || !a.IsObject() {
			return
		}
		p, err := registry.ParseJSON([]byte(answer))
		if err != nil {
			p = registry.JSON{}
		}
		inv, err := c.Invoke(tool, commands.Call{Args: a, Left: time.Minute})
		for range 4 {
			if err != nil {
				return
			}
			if !json.Valid(inv.Params) || inv.Command == "" {
				t.Fatalf("%s: %s", inv.Command, inv.Params)
			}
			for _, answer := range []commands.Answer{{Payload: p},
				{Failure: &commands.Failure{Code: code, Message: message}}} {
				step := commands.After(c, tool, inv, answer)
				for i := range step.Result.Parts {
					if field, must := step.Result.Parts[i].Check(); field != "" {
						t.Fatalf("%s %s", field, must)
					}
				}
				if step.Invoke == nil && step.Ask == "" && !step.Result.Success && step.Result.Output == "" {
					t.Fatal("a failure without a text")
				}
				if step.Invoke != nil {
					inv = *step.Invoke
				}
			}
		}
	})
}
