package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// consoleStage is a fleet of two pods behind nginx, and a person in front of its console.
type consoleStage struct {
	*pageBrowser
	gateway string      // for devices
	url     string      // for the page
	network *faultProxy // of the page
	pods    []*pod

	provider *identityProvider

	late chan struct{} // closed: the tool "stubborn" answers
	free chan struct{} // closed: the tool "patient" answers
}

// TestConsole uses the views of devices, tools and calls as a person would, in a real Chromium. One fleet and one tab
// serve all steps, which build on each other.
func TestConsole(t *testing.T) {
	t.Parallel()
	provider := startIdentityProvider(t)
	pods := startFleet(t, 2, redistest.Single(t), append(provider.settings(), "FARHAND_POD_LEASE=2s",
		"FARHAND_BUILTIN_TOOLS=time", "FARHAND_LOG_LEVEL=info", "FARHAND_ACCESS_LOG=all", "FARHAND_PRIVATE_URLS=true",
		"FARHAND_WAKE_WEBHOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")...)
	s := &consoleStage{
		pageBrowser: startPageBrowser(t), pods: pods, provider: provider,
		late: make(chan struct{}), free: make(chan struct{}),
	}
	s.gateway = startBalancer(t, append(pods, pods[1])) // whose configuration has three
	s.network = startFaultProxy(t, strings.TrimPrefix(s.gateway, "http://"))
	s.url = "http://" + s.network.Listen
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"sign in", s.signIn}, {"sign in elsewhere", s.signInElsewhere}, {"devices appear", s.devicesAppear},
		{"search and group", s.searchAndGroup},
		{"a device", s.oneDevice}, {"try a tool", s.tryTool}, {"results of all kinds", s.results},
		{"progress and cancel", s.progressAndCancel}, {"copy as", s.copyAs}, {"calls", s.calls},
		{"a call waits for approval", s.waitsForApproval}, {"waiting tools", s.waitingTools},
		{"a sleeping device", s.sleepingDevice}, {"a group call", s.groupCall},
		{"looks", s.looks}, {"keyboard", s.keyboard}, {"the network is cut", s.networkIsCut}, {"a pod dies", s.podDies},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.TB = t; step.do(); s.quiet() }) {
			s.picture("failed")
			s.pageBrowser.TB = t
			t.Fatalf("the other steps need this one\n%s", s.text())
		}
	}
}

func (s *consoleStage) signIn() {
	s.size(1280, "light")
	s.open(s.url + "/console/")
	s.see("Sign in")
	s.picture("signin-1280-light")
	s.fill("Key or token", "not-the-token-of-this-fleet")
	s.press("Sign in")
	s.see("The gateway rejected this credential")
	s.fill("Key or token", fleetToken)
	s.press("Sign in")
	s.see("No device is connected", "farhand device --server "+s.url)
	s.accessible("the empty list")
	s.picture("empty-1280-light")
	leaks := eval[bool](s.pageBrowser, `[location.href, document.referrer, ...Object.values(localStorage)]
		.some(e => e.includes("`+fleetToken+`"))`)
	if leaks {
		s.Error("the token stands where it must not")
	}
}

const cameraSchema = `{"type":"object","required":["facing"],"properties":{
	"facing":{"type":"string","enum":["front","back"],"title":"Facing","description":"Which camera."},
	"width":{"type":"integer","minimum":16,"maximum":4096,"title":"Width","default":640},
	"flash":{"type":"boolean","title":"Flash"},
	"tags":{"type":"array","title":"Tags","items":{"type":"string"}},
	"place":{"type":"object","title":"Place","properties":{"room":{"type":"string","title":"Room"}}}}}`

// pixel is a PNG of one pixel.
var pixel, _ = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk" +
	"+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

// phone offers the tools that the steps use.
func (s *consoleStage) phone() []client.Option {
	text := func(answer any) client.Handler {
		return func(context.Context, client.Call) (any, error) { return answer, nil }
	}
	yes := true
	return []client.Option{
		client.WithDevice("phone-1", "Anna's phone", "android"),
		client.WithLabels(map[string]string{"room": "kitchen"}), client.WithTool(client.Tool{
			Name: "camera_snap", Description: "Takes a picture with one of the cameras.",
			Parameters: json.RawMessage(cameraSchema), Hints: client.Hints{ReadOnly: &yes},
		}, text(client.Result{Output: "a picture", Parts: []client.Part{
			{Type: client.PartImage, MIMEType: "image/png", Name: "snap.png", Data: pixel},
			{Type: client.PartFile, MIMEType: "image/svg+xml", Name: "drawing.svg",
				Data: []byte("<svg onload=alert(1)>")},
			{Type: client.PartFile, MIMEType: "text/html", Name: "page.html",
				Data: []byte("<script>alert(1)</script>")},
			{Type: client.PartFile, MIMEType: "video/webm", Name: "clip.webm", Data: []byte("no real video")},
			{Type: client.PartAudio, MIMEType: "audio/wav", Name: "sound.wav", Data: []byte("no real sound")},
		}})),
		client.WithTool(client.Tool{Name: "status", Description: "Says how the phone is."},
			text(map[string]any{"battery": 0.83, "apps": []string{"mail", "maps"},
				"network": map[string]any{"kind": "wifi"}})),
		client.WithTool(client.Tool{Name: "wipe", Description: "Erases everything.", SecurityLevel: "user_confirm"},
			text("wiped")),
		client.WithTool(client.Tool{Name: "broken", Description: "Always fails."},
			func(context.Context, client.Call) (any, error) { return nil, errors.New("the lens is dirty") }),
		client.WithTool(client.Tool{Name: "upload", Description: "Reports how far it is, until it is cancelled."},
			func(ctx context.Context, call client.Call) (any, error) {
				call.Progress(3, 10, "three of ten")
				call.Chunk("first part of the output\n")
				<-ctx.Done()
				return nil, ctx.Err()
			}),
		client.WithTool(client.Tool{Name: "stubborn", Description: "Answers after it was cancelled."},
			halfWay(s.late, "better late than never")),
		client.WithTool(client.Tool{Name: "patient", Description: "Answers when it may."},
			halfWay(s.free, "patience pays")),
	}
}

// halfWay reports progress, and answers when a channel is closed.
func halfWay(until <-chan struct{}, answer string) client.Handler {
	return func(_ context.Context, call client.Call) (any, error) {
		call.Progress(1, 2, "half way")
		<-until
		return answer, nil
	}
}

func (s *consoleStage) devicesAppear() {
	connectDevice(s.parent(), s.gateway, "anna", s.phone()...)
	s.see("Anna's phone", "phone-1", "room=kitchen", "1 of 1 connected")
	for i := range 6 {
		connectDevice(s.parent(), s.gateway, fmt.Sprintf("lamp-%d", i), echoTool(),
			client.WithDevice(fmt.Sprintf("lamp-%d", i), fmt.Sprintf("Lamp %d", i), "linux"),
			client.WithLabels(map[string]string{"room": []string{"kitchen", "hall"}[i%2]}))
	}
	s.see("Lamp 5", "7 of 7 connected")
	leave := connectDevice(s.parent(), s.gateway, "short", echoTool(), client.WithDevice("short", "Short visit", ""))
	s.see("8 of 8 connected")
	leave()
	s.see("7 of 8 connected")
}

// parent is what outlives the steps.
func (s *consoleStage) parent() testing.TB { return s.pageBrowser.parentTB }

func (s *consoleStage) searchAndGroup() {
	s.fill("Search name, user, label, tool…", "room=hall lamp")
	s.gone("Anna's phone")
	s.see("Lamp 1", "Lamp 3")
	s.gone("Lamp 2")
	s.fill("Search name, user, label, tool…", "camera_snap")
	s.see("Anna's phone")
	s.gone("Lamp 1")
	s.fill("Search name, user, label, tool…", "no such thing")
	s.see("No device matches")
	s.press("Clear the search")
	s.see("Lamp 1")
	s.press("Sleeping")
	s.see("Short visit")
	s.gone("Lamp 1")
	s.press("All")
	s.fill("Group by", "label:room")
	s.see("hall · 3", "kitchen · 4")
	s.openAgain()
	s.see("hall · 3", "kitchen · 4") // the address has it
	s.fill("Group by", "pod")
	for _, p := range s.pods {
		s.see(p.id + " · ")
	}
	s.fill("Group by", "")
}

func (s *consoleStage) oneDevice() {
	s.press("Anna's phone connected")
	s.see("About", "phone-1", "android", "kitchen", "camera_snap", "Not paired", "No calls yet", "Read-only")
	s.press("Rename")
	s.fill("Name", "Anna's old phone")
	s.press("Save")
	s.see("Anna's old phone")
	s.gone("Save")
}

func (s *consoleStage) tryTool() {
	s.open(s.url + "/console/devices/anna/tools/camera_snap")
	s.see("Takes a picture", "Facing", "Width", "Ready to call")
	s.press("Call")
	s.see("property") // which is missing
	var calls struct{ Calls []any }
	if getJSON(s, s.pods[0].url+"/api/calls", &calls); len(calls.Calls) != 0 {
		s.Error("arguments that do not fit were sent")
	}
	s.until("choose a camera", `(() => {
		const field = document.querySelector("select#argument_facing");
		if (!field) return false;
		field.selectedIndex = [...field.options].findIndex(o => o.text === "back");
		field.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})()`)
	s.press("Call")
	s.see("Succeeded", "Timeline", "a picture", "snap.png")
	s.press("JSON")
	s.until("the arguments as JSON", `document.querySelector("textarea").value.includes('"facing": "back"')`)
	s.fill("Arguments as JSON", `{"facing":"up"}`)
	s.press("Call again")
	s.see("The arguments do not fit the schema")
	s.fill("Arguments as JSON", `{"facing"`)
	s.press("Call again")
	s.see("This is not JSON")
}

func (s *consoleStage) results() {
	s.until("the picture", `document.querySelector("figure img")?.naturalWidth === 1`)
	shown := eval[int](s.pageBrowser, `[...document.querySelectorAll("figure")]
		.filter(e => /svg|html/.test(e.innerText) && e.querySelector("img, iframe, object, video")).length + document.querySelectorAll("iframe, object, embed").length`)
	if shown > 0 {
		s.Error("a page of a device is shown")
	}
	s.see("drawing.svg", "page.html")
	s.until("players", `document.querySelector("video[controls][src^='blob:']") &&
		document.querySelector("audio[controls][src^='blob:']")`)
	s.picture("tool-1280-light")
	s.open(s.url + "/console/devices/anna/tools/status")
	s.see("Arguments as JSON"[:9])
	s.press("Call")
	s.see("Succeeded", "battery: ", "0.83", "network: ")
	s.open(s.url + "/console/tools")
	s.press("time Read-only The current date and time, in UTC unless a time zone is given.")
	s.press("Call")
	s.see("Succeeded", "on gateway", "utc_offset_seconds")
	s.open(s.url + "/console/devices/anna/tools/broken")
	s.press("Call")
	s.see("the lens is dirty", "Failed")
}

func (s *consoleStage) progressAndCancel() {
	s.open(s.url + "/console/devices/anna/tools/upload")
	s.press("Call")
	s.see("3 / 10", "three of ten", "first part of the output", "Running")
	s.picture("running-1280-light")
	s.press("Cancel call")
	s.see("Cancelled", "The call was cancelled")
	s.open(s.url + "/console/devices/anna/tools/stubborn")
	s.until("click twice", `(async () => {
		const button = [...document.querySelectorAll("button[type=submit]")].find(e => e.innerText === "Call");
		button?.click();
		await new Promise(done => setTimeout(done));
		button?.click();
		return button;
	})()`)
	s.see("half way")
	s.press("Cancel call")
	s.see("Cancelled")
	var calls struct{ Calls []any }
	if getJSON(s, s.pods[0].url+"/api/calls?tool=stubborn", &calls); len(calls.Calls) != 1 {
		s.Errorf("two clicks are %d calls", len(calls.Calls))
	}
	s.press("Open the call")
	s.see("Decisions", "Received by", "Delivered by")
	close(s.late)
	s.see("Late answer", "better late than never")
}

func (s *consoleStage) copyAs() {
	s.open(s.url + "/console/devices/anna/tools/camera_snap")
	s.press("JSON")
	s.fill("Arguments as JSON", `{"facing":"back","place":{"room":"it's \u202e 😀 here"}}`)
	for _, form := range []string{"curl", "CLI", "TypeScript", "Python", "MCP"} {
		s.press(form)
		s.until(form, `document.body.innerText.includes("\\u202e")`)
	}
	for form, runs := range map[string]string{"curl": "sh", "Python": "python3"} {
		s.press(form)
		written := eval[string](s.pageBrowser, `[...document.querySelectorAll("pre")]
			.find(e => /curl -X POST|urllib/.test(e.innerText)).innerText`)
		p := start(s.parent(), []string{"FARHAND_TOKEN=" + fleetToken}, runs, "-c", written)
		if code := p.exit(s); code != 0 || !strings.Contains(p.out.String(), "a picture") {
			s.Errorf("%s\nends with %d: %s", written, code, p.out)
		}
	}
}

// emptyPages makes the gateway's pages of calls empty with a next one, as in a feed longer than a page searches.
const emptyPages = `(() => {
	const real = window.fetch;
	window.fetch = (to, ...rest) => String(to.url ?? to).includes("/api/calls?")
		? Promise.resolve(Response.json({calls: [], next_cursor: "older"})) : real(to, ...rest);
	return true;
})()`

func (s *consoleStage) calls() {
	s.open(s.url + "/console/calls")
	s.see("camera_snap", "stubborn", "Succeeded", "Failed", "Anna's old phone")
	for _, url := range []string{s.url, s.url, s.pods[0].url} { // the balancer may choose the other pod each time
		callTool(s, url, "/api/sessions/lamp-1/tools/echo/call", `{}`)
	}
	s.see("echo") // by the event stream
	s.fill("State", "failed")
	s.gone("camera_snap")
	s.see("broken")
	s.press("Clear filters")
	s.fill("Tool", "status")
	s.gone("broken")
	s.fill("Tool", "")
	s.fill("Session", "lamp-1")
	s.gone("status")
	s.see("echo")
	s.fill("Session", "")
	s.fill("User", "no-such-user")
	s.see("No call matches")
	s.fill("User", "")
	s.fill("Pod", s.pods[0].id)
	s.see("echo")
	s.open(s.url + "/console/calls?pod=no-such-pod")
	s.see("No call matches")
	s.open(s.url + "/console/calls?to=2026-01-01T00:00:00Z")
	s.see("No call matches")
	s.fill("Ended before", "")
	s.see("status")
	s.fill("Ended", "between")
	s.until("the time in the address", `new URLSearchParams(location.search).get("from")?.endsWith("Z")`)
	s.fill("Ended from", "2026-01-01T00:00")
	s.see("status")
	for _, width := range []int{360, 1280} {
		s.size(width, "light")
		s.fits("calls between two times", width)
		s.accessible("calls between two times")
		s.picture(fmt.Sprintf("calls-between-%d-light", width))
	}
	eval[bool](s.pageBrowser, emptyPages)
	s.fill("Tool", "rare")
	s.see("No match in the newest calls")
	s.open(s.url + "/console/calls?time=m5")
	s.see("status")
	s.press("status")
	s.see("Timeline", "Accepted", "at pod", "battery: ", "Decisions", "Received by", "allows it by default")
}

func (s *consoleStage) waitsForApproval() {
	_, made := request(s, http.MethodPost, s.url+"/api/keys", `{"name":"anna's laptop","roles":["caller"]}`)
	var key struct{ Key string }
	if err := json.Unmarshal(made, &key); err != nil {
		s.Fatal(err)
	}
	s.press("Sign out")
	s.fill("Key or token", key.Key)
	s.press("Sign in")
	s.open(s.url + "/console/devices/anna/tools/wipe")
	s.see("Needs approval", "Calls of this tool wait for an approver")
	s.press("Call")
	s.see("Waits for approval", "An approver must allow this call")
	var pending struct{ Approvals []struct{ ID string } }
	getJSON(s, s.url+"/api/approvals", &pending)
	if len(pending.Approvals) != 1 {
		s.Fatalf("%d approvals wait", len(pending.Approvals))
	}
	request(s, http.MethodPost, s.url+"/api/approvals/"+pending.Approvals[0].ID, `{"decision":"allow-once"}`)
	s.see("Succeeded", "wiped")
	s.gone("Operate") // is for admins
	s.press("Sign out")
	s.fill("Key or token", fleetToken)
	s.press("Sign in")
	s.see("Operate")
}

func (s *consoleStage) waitingTools() {
	var asked struct{ Code, Secret string }
	_, raw := request(s, http.MethodPost, s.url+"/pair",
		`{"device_id":"watch","device_name":"Watch","tools":["pulse"]}`)
	if err := json.Unmarshal(raw, &asked); err != nil {
		s.Fatal(err)
	}
	request(s, http.MethodPost, s.url+"/api/pairings", fmt.Sprintf(`{"code":%q,"decision":"approve"}`, asked.Code))
	var paired struct{ Credential string }
	_, raw = request(s, http.MethodPost, s.url+"/pair/status", fmt.Sprintf(`{"secret":%q}`, asked.Secret))
	if err := json.Unmarshal(raw, &paired); err != nil || paired.Credential == "" {
		s.Fatalf("not paired: %s", raw)
	}
	tool := func(name string) client.Option {
		return client.WithTool(client.Tool{Name: name, Description: "measures " + name},
			func(context.Context, client.Call) (any, error) { return "fine", nil })
	}
	connectDevice(s.parent(), s.gateway, "watch", client.WithToken(paired.Credential),
		client.WithDevice("watch", "Watch", ""),
		tool("pulse"), tool("position"), tool("contacts"))
	s.open(s.url + "/console/devices/watch")
	s.see("Tools that wait for approval (2)", "measures position", "Credential", "Approved by")
	s.picture("waiting-1280-light")
	s.accessible("waiting tools")
	s.press("Approve")
	s.see("Tools that wait for approval (1)")
	s.press("Reject")
	s.gone("Tools that wait for approval")
	s.see("Tools (2)")
	s.press("Revoke")
	s.see("It must pair again")
	s.until("the dialog's button", `(() => {
		const button = document.querySelector("dialog[open] button[type=submit]");
		button?.click();
		return button;
	})()`)
	s.see("Not paired")
	s.see("Away")
}
