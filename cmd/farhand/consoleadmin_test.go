package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/input"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// adminStage is a fleet of two pods behind nginx with a scripted model, and an admin in front of its console.
type adminStage struct {
	*pageBrowser
	url   string
	pods  []*pod
	robot string        // a caller's key, whose calls need approval
	held  chan struct{} // closed: the model goes on

	finger bool // the screen is touched, and there is no mouse
}

// nasty are texts that would run something in a page that puts them into its HTML.
var nasty = []string{
	`<img src=x onerror=alert(1)>`, `<script>alert(2)</script>`, `"><svg onload=alert(3)>`,
	`<a href="javascript:alert(4)">x</a>`, `[x](javascript:alert(5))`, `<iframe srcdoc="<script>alert(6)</script>">`,
	`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(7)&gt;">`,
	"`<b onmouseover=alert(8)>`", `![x](https://example.com/?leak)`, `<form action=https://example.com><input name=q>`,
	`{{constructor.constructor('alert(9)')()}}`, `<details open ontoggle=alert(10)>`,
}

// seenOutside is an address that only a device has named.
const seenOutside = "https://mallory.example/account/7781"

const adminPolicy = `version: 1
# <img src=x onerror=alert(1)>
calls:
  - {id: no-cameras, contexts: group, deny: camera_*, reason: "No cameras <script>alert(1)</script> in groups."}
tools:
  - id: money
    names: pay
    approval: always
    reason: "Money <img src=x onerror=alert(1)> leaves the house."
`

// TestConsoleAdmin uses the views of approvals, chat, access and operation as a person would, in a real Chromium. One
// fleet and one tab serve all steps, which build on each other.
func TestConsoleAdmin(t *testing.T) {
	t.Parallel()
	s := &adminStage{held: make(chan struct{})}
	model := scripted.OpenAIFunc(t, s.model)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(adminPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s.pods = startFleet(t, 2, lastingRedis(t), append(agentSettings(providerOpenAI, model), "FARHAND_POD_LEASE=2s",
		"FARHAND_POLICY_FILE="+file, "FARHAND_PAIRING=open", "FARHAND_WORKSPACE_DIR="+t.TempDir(),
		"FARHAND_BLOB_URL=file://"+t.TempDir())...)
	s.url = startBalancer(t, append(s.pods, s.pods[1])) // whose configuration has three
	s.pageBrowser = startPageBrowser(t)
	s.connect()
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"keys", s.keys}, {"approve on a phone", s.approveOnPhone}, {"always, and grants", s.always},
		{"deny with a comment", s.deny}, {"notifications", s.notifications}, {"chat", s.chat},
		{"others' turns, stop, answer again", s.turns}, {"export of a conversation", s.exportChat},
		{"policy", s.policy}, {"pairing", s.pairing}, {"audit", s.audit}, {"usage", s.usage}, {"checks", s.checks},
		{"looks", s.looks}, {"framed by others", s.framed}, {"a pod dies", s.podDies}, {"a caller sees less", s.caller},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.TB = t; step.do(); s.quiet() }) {
			s.picture("failed")
			t.Fatal("the other steps need this one")
		}
	}
}

// model says what a conversation's step needs.
func (s *adminStage) model(r scripted.Request) scripted.Step {
	role, content := lastOf(r)
	switch {
	case role == "tool" && strings.Contains(content, "paid"):
		return scripted.Reply(scripted.Text("It is **paid**.\n\n", "- one\n- two\n\n", strings.Join(nasty, "\n\n")),
			scripted.Usage(1200, 80))
	case role == "tool" && strings.Contains(content, "denied"):
		return scripted.Reply(scripted.Text("The person denied it."))
	case role == "tool":
		return scripted.Reply(scripted.Text("Here is the picture."), scripted.Usage(300, 12))
	case strings.Contains(content, "once more"):
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "pay", Args: `{"to":"` + seenOutside + `"}`}))
	case strings.Contains(content, "pay"):
		return scripted.Reply(scripted.Text("I pay now."), scripted.Calls(scripted.Call{
			Name: "pay", Args: `{"to":"Ann","amount":12,"note":` + quoted(nasty[0]) + `}`,
		}))
	case strings.Contains(content, "picture"):
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "camera_snap", Args: `{}`}))
	case strings.Contains(content, "wait"):
		return scripted.Reply(scripted.Text("I begin"), scripted.Hold(s.held), scripted.Text(" and end."))
	default:
		return scripted.Reply(scripted.Text("You said: "+content), scripted.Usage(100, 10))
	}
}

func (s *adminStage) connect() {
	connectDevice(s.parentTB, s.url, "anna", client.WithDevice("phone-1", "Anna's phone", "android"),
		client.WithTool(client.Tool{
			Name: "pay", Description: "Pays.", SecurityLevel: "user_confirm",
			Effects: &client.Effects{Class: "external", Permission: "bank", Cost: "high", TypicalMS: 2000},
		},
			func(_ context.Context, call client.Call) (any, error) { return "paid " + string(call.Args), nil }),
		client.WithTool(client.Tool{Name: "camera_snap", Description: "Takes a picture."},
			func(context.Context, client.Call) (any, error) {
				return client.Result{Output: nasty[0] + " " + seenOutside, Parts: []client.Part{
					{Type: client.PartImage, MIMEType: "image/png", Name: nasty[2], Data: pixel},
					{Type: client.PartFile, MIMEType: "image/svg+xml", Name: "x.svg", Data: []byte(nasty[2])},
				}}, nil
			}))
	connectDevice(s.parentTB, s.url, "desk", echoTool(), client.WithDevice("desk-1", "Desk", "linux"))
}

// view opens a view of the console.
func (s *adminStage) view(path string) { s.Helper(); s.open(s.url + "/console" + path) }

// click presses what has a name with a real mouse, or a finger on a touch screen, at its place.
func (s *adminStage) click(name string) {
	s.Helper()
	s.until("the button "+name, fmt.Sprintf(`(() => {
		const all = [...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, a, summary")];
		const found = all.find(e => (e.getAttribute("aria-label") ?? e.innerText).trim() === %s && !e.disabled);
		found?.scrollIntoView({block: "nearest"});
		window.aim = found;
		return found && found.getAttribute("aria-disabled") !== "true";
	})()`, quoted(name)))
	s.tapAim()
}

// tapAim taps the middle of what window.aim is.
func (s *adminStage) tapAim() {
	s.Helper()
	at := eval[[]float64](s.pageBrowser, `(() => {
		const box = window.aim.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2];
	})()`)
	if s.finger {
		point := []*input.TouchPoint{{X: at[0], Y: at[1]}}
		tellBrowser(s.pageBrowser, input.DispatchTouchEvent,
			input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: point})
		tellBrowser(s.pageBrowser, input.DispatchTouchEvent,
			input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchEnd,
				TouchPoints: []*input.TouchPoint{}})
		return
	}
	s.clickAt(at[0], at[1])
}

func (s *adminStage) keys() {
	s.size(1280, "light")
	s.view("/")
	s.fill("Key or token", fleetToken)
	s.press("Sign in")
	s.see("Anna's phone")
	s.view("/access/keys")
	s.see("No keys")
	s.press("Create a key")
	s.fill("Name", nasty[0])
	s.fill("User", "ann")
	s.press("Create a key")
	s.see("This is the only time")
	key := eval[string](s.pageBrowser, `document.querySelector(".secret").innerText.trim()`)
	if status := s.statusOf(key); status != http.StatusOK {
		s.Errorf("the key does not work: %d", status)
	}
	s.press("I have stored it")
	s.see("ann", nasty[0])
	if eval[bool](s.pageBrowser, "document.documentElement.outerHTML.includes("+quoted(key)+")") {
		s.Error("the key is still shown")
	}
	s.press("Revoke")
	s.see("is rejected within a second")
	s.press("Revoke")
	s.see("The key is revoked", "No keys")
	eventually(s, waitLimit, "the key is revoked", func() bool { return s.statusOf(key) == http.StatusUnauthorized })
	s.press("Create a key")
	s.fill("Name", "robot")
	s.fill("User", "bob")
	s.press("Create a key")
	s.see("This is the only time")
	s.robot = eval[string](s.pageBrowser, `document.querySelector(".secret").innerText.trim()`)
	s.press("I have stored it")
	s.see("robot")
}

func (s *adminStage) statusOf(key string) int {
	s.Helper()
	r, err := http.NewRequest(http.MethodGet, s.url+"/api/tools", nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (s *adminStage) policy() {
	s.view("/access/policy")
	s.see("no-cameras", "<img src=x onerror=alert(1)>", "default:files", "In force")
	s.fill("Tool", "camera_snap")
	s.press("Explain")
	s.see("Allowed", "No rule had to decide")
	s.fill("Conversation", "group")
	s.press("Explain")
	s.see("Denied", "no-cameras", "No cameras <script>alert(1)</script> in groups.")
	s.fill("Tool", "pay")
	s.fill("Security level", "user_confirm")
	s.press("Explain")
	s.see("Needs approval", "money", "default:confirm-direct")
	s.picture("policy-1280-light")
}

func (s *adminStage) pairing() {
	var asked struct{ Code, Secret string }
	status, raw := request(s, http.MethodPost, s.url+"/pair",
		`{"device_id":"tablet-7","device_name":`+quoted(nasty[1])+
			`,"platform":"android","tools":["camera_snap","torch"]}`)
	if err := json.Unmarshal(raw, &asked); err != nil || status != http.StatusCreated {
		s.Fatal(status, string(raw))
	}
	s.view("/access/pairing")
	s.see("Pair a device", s.url+"/device", "works on this machine only")
	s.fill("Code shown on the device", strings.ToLower(asked.Code))
	s.press("Find the request")
	s.see("tablet-7", "camera_snap, torch")
	s.fill("Name", "Tablet")
	s.fill("Tools it may offer", "camera_*")
	s.picture("pairing-review-1280-light")
	s.press("Approve")
	s.see("The device is paired")
	if status, raw = request(s, http.MethodPost, s.url+"/pair/status", `{"secret":"`+asked.Secret+`"}`); status != 200 {
		s.Fatal(status, string(raw))
	}
	s.view("/access/devices")
	s.see("Tablet", "tablet-7", "camera_*")
	s.press("Rename")
	s.fill("Name", "Kitchen tablet")
	s.press("Rename")
	s.see("Kitchen tablet")
}

func (s *adminStage) audit() {
	s.view("/access/audit?user=bob")
	s.see("robot", "pay", "allowed")
	s.view("/access/audit")
	s.fill("Action", "approval.decide")
	s.see("Too much " + nasty[0])
	s.until("decisions only", `[...document.querySelectorAll(".table code")].every(e =>
		e.innerText === "approval.decide")`)
	eval[bool](s.pageBrowser, saved)
	s.press("Export")
	s.until("a file", "window.saved")
	lines := strings.Split(strings.TrimSpace(eval[string](s.pageBrowser, "window.saved")), "\n")
	for _, line := range lines {
		if !strings.Contains(line, `"approval.decide"`) || !json.Valid([]byte(line)) {
			s.Errorf("exported: %s", line)
		}
	}
	if len(lines) < 4 {
		s.Errorf("%d lines are exported", len(lines))
	}
	s.fill("Outcome", "seen")
	s.see("No lines")
}

func (s *adminStage) usage() {
	eventually(s, waitLimit, "usage is written", func() bool { // every three seconds
		var list struct{ Usage []any }
		getJSON(s, s.url+"/api/usage", &list)
		return len(list.Usage) > 1
	})
	s.view("/access/usage")
	s.see("Calls per day", "pay", "Total")
	s.until("a chart", `document.querySelector(".chart canvas")`)
	s.press("Model tokens")
	s.see("Model tokens per day", "Tokens in", "Tokens out")
	s.press("User")
	s.see("bob")
	eval[bool](s.pageBrowser, saved)
	s.press("Export")
	s.until("a file", "window.saved")
	first, _, _ := strings.Cut(eval[string](s.pageBrowser, "window.saved"), "\n")
	var row wire.UsageRow
	if err := json.Unmarshal([]byte(first), &row); err != nil || row.User == nil {
		s.Errorf("exported: %s, %v", first, err)
	}
	s.until("the most tokens first, by input and output", `["Tokens in", "Tokens out"].every(title =>
		parseInt(document.querySelector(".table tbody tr [data-title='" + title + "']").innerText) > 0)`)
}

// lastingRedis is a Redis with snapshots: of another the checks warn.
func lastingRedis(t testing.TB) (url string) { return redistest.Start(t, "--save", "3600", "1").URL() }

func (s *adminStage) checks() {
	s.view("/operate/checks")
	s.press("Run the checks")
	s.see("By the pod", "store", "Redis answers", "OK")
}

// looks checks each view at all widths and in both themes, and takes its picture.
func (s *adminStage) looks() {
	_, id := s.asked(`{"to":"Gil","amount":40,"note":"for the pizza"}`)
	s.asked(`{"to":"Hal","amount":4000}`)
	callTool(s, s.url, "/api/approvals/"+id, `{"decision":"allow-always"}`)
	_, id = s.asked(`{"to":"Ida","amount":7,"note":"Ünïcode"}`)
	views := map[string]string{
		"approvals": "/approvals", "request": "/approvals/" + id, "grants": "/approvals/grants", "chats": "/chat",
		"chat": "/chat/anna", "pairing": "/access/pairing", "devices": "/access/devices", "keys": "/access/keys",
		"policy": "/access/policy", "audit": "/access/audit", "usage": "/access/usage", "pods": "/operate/pods",
	}
	names := make([]string, 0, len(views))
	for name := range views {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s.view(views[name])
		s.until(name, `document.querySelector(".panel, .conversation") && !document.querySelector(".loading")`)
		if name == "pods" { // soon after calls
			s.docPicture("console-pods")
		}
		for _, width := range s.widths(360, 1024, 1280, 3840) {
			for _, theme := range []string{"light", "dark"} {
				s.size(width, theme)
				s.fits(name, width)
				s.picture(fmt.Sprintf("%s-%d-%s", name, width, theme))
				if width == 360 && theme == "light" || width == 1280 && theme == "dark" {
					s.accessible(fmt.Sprintf("%s, %d px, %s", name, width, theme))
				}
			}
		}
	}
	s.size(1280, "light")
}

func (s *adminStage) podDies() {
	s.view("/operate/pods")
	s.see(s.pods[0].id, s.pods[1].id, "Ready", "Calls per second, all pods")
	gone := s.pods[1]
	gone.signal(syscall.SIGKILL)
	s.see("The pod " + gone.id + " died.")
	s.until("one pod is left", `document.querySelectorAll(".table tbody tr").length === 1`)
	s.picture("pod-died-1280-light")
}

// caller: who may only call sees no view of approvers and admins, whatever the address is.
func (s *adminStage) caller() {
	s.press("Sign out")
	s.fill("Key or token", s.robot)
	s.press("Sign in")
	s.see("There is no such page") // the address is still that of the pods
	shown := eval[[]string](s.pageBrowser, `[...document.querySelectorAll("nav .tab")].map(e => e.innerText)`)
	if want := []string{"Devices", "Calls", "Chat", "Access"}; !slices.Equal(shown, want) {
		s.Errorf("a caller sees %q", shown)
	}
	for _, path := range []string{"/approvals", "/approvals/grants", "/operate/checks"} {
		s.view(path)
		s.see("There is no such page")
	}
	s.view("/access/keys")
	s.see("Calls per day") // of its own usage
	if tabs := eval[string](s.pageBrowser, `document.querySelector(".subtabs nav").innerText`); tabs != "Usage" {
		s.Errorf("a caller sees %q", tabs)
	}
}
