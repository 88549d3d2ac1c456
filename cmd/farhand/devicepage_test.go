package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/redisstore/redistest"
)

// phoneStage is a fleet of two pods behind nginx, and a person with a browser that is a device.
type phoneStage struct {
	*pageBrowser
	balancer string // whose address agents use
	url      string // of the browser, through a network that can fail
	network  *faultProxy
	pods     []*pod
}

// standIns replace what a Chromium without a screen, a voice or sensors lacks. Each notes that it was used.
const standIns = `
window.used = [];
navigator.share = async what => { used.push("share " + what.url) };
navigator.vibrate = pattern => { used.push("vibrate " + pattern); return true };
window.open = (url, target, how) => { used.push("open " + url + " " + how) };
speechSynthesis.speak = utterance => { used.push("speak " + utterance.text); setTimeout(() => utterance.onend({})) };
window.webkitSpeechRecognition = window.SpeechRecognition = class extends EventTarget {
  start() { setTimeout(() => this.onresult({ results: [[{ transcript: "good evening", confidence: 0.75 }]] })) }
  abort() {}
};
if (self.DeviceMotionEvent) setInterval(() => {
  dispatchEvent(new DeviceMotionEvent("devicemotion", { accelerationIncludingGravity: { x: 0, y: 0, z: 9.81 },
    acceleration: { x: 0, y: 3, z: 4 }, rotationRate: { alpha: 1, beta: 2, gamma: 3 } }));
  dispatchEvent(new DeviceOrientationEvent("deviceorientation", { alpha: 90, beta: 1, gamma: 2 }));
}, 50);
if (navigator.wakeLock) navigator.wakeLock.request = async kind => {
  used.push("wake lock " + kind);
  return Object.assign(new EventTarget(), { release: async () => used.push("released") });
};`

// TestDevicePage uses the device page as a person and an agent would, in a real Chromium. One fleet and one browser
// serve all steps, which build on each other.
func TestDevicePage(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 2, redistest.Single(t), "FARHAND_POD_LEASE=2s",
		"FARHAND_BUILTIN_TOOLS=nodes,node-invoke,canvas")
	s := &phoneStage{
		pods: pods, balancer: startBalancer(t, append(pods, pods[1])), // whose configuration has three
		pageBrowser: startPageBrowser(t, chromedp.Flag("use-fake-device-for-media-stream", true),
			chromedp.Flag("use-fake-ui-for-media-stream", true), chromedp.Flag("auto-accept-this-tab-capture", true),
			chromedp.Flag("host-resolver-rules", "MAP phone.example 127.0.0.1")),
	}
	s.network = startFaultProxy(t, strings.TrimPrefix(s.balancer, "http://"))
	s.url = "http://" + s.network.Listen
	tellBrowser(s.pageBrowser, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: standIns})
	for name, setting := range map[string]browser.PermissionSetting{
		"notifications": "prompt", "clipboard-read": "granted", "clipboard-write": "granted",
	} {
		s.permit(name, setting)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"pairing", s.pairing}, {"what agents see", s.listed}, {"tools", s.callTools},
		{"camera and sound", s.recordings}, {"questions", s.questions}, {"taps", s.taps},
		{"canvas", s.canvas}, {"A2UI", s.a2ui}, {"nodes", s.nodes},
		{"the canvas is locked in", s.lockedIn}, {"a hostile canvas", s.hostileCanvas},
		{"injected texts", s.injections}, {"an approval", s.approval},
		{"a hostile approval", s.hostileApproval},
		{"switched off", s.switchedOff}, {"permission denied", s.denied}, {"looks", s.phoneLooks},
		{"stop", s.stop}, {"reload", s.reload}, {"network", s.networkFails}, {"a pod dies", s.servingPodDies},
		{"another tab", s.anotherTab}, {"without network", s.offline}, {"revoked", s.revoked}, {"insecure", s.insecure},
		{"an untrusted certificate", s.clickedThrough},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.TB = t; step.do(); s.quiet() }) {
			s.picture("failed")
			t.Fatal("the other steps need this one")
		}
	}
}

// tap presses a button or link where it is, as a finger would: browsers allow some things only then. What is disabled,
// as questions are after they have moved, takes no tap, and is tapped again.
func (s *phoneStage) tap(name string) {
	s.Helper()
	s.until("tap "+name, fmt.Sprintf(`(() => {
		const all = [...document.querySelectorAll("button, a, summary, input[type=checkbox]")];
		const found = all.find(e => (e.ariaLabel ?? e.closest("label")?.innerText ?? e.innerText).trim().startsWith(%s) && !e.disabled);
		found?.scrollIntoView({block: "center"});
		window.clicked = false;
		found?.addEventListener("click", () => { window.clicked = true }, {once: true});
		return window.tapped = found;
	})()`, quoted(name)))
	for taken := false; !taken; taken = eval[bool](s.pageBrowser, "window.clicked !== false") {
		s.until(name+" stands still", `(() => {
			const {x, y, width, height} = tapped.getBoundingClientRect();
			const same = window.tapAt?.x === x + width / 2 && window.tapAt?.y === y + height / 2;
			window.tapAt = {x: x + width / 2, y: y + height / 2};
			return same && !tapped.disabled;
		})()`)
		at := eval[struct{ X, Y float64 }](s.pageBrowser, "window.tapAt")
		s.clickAt(at.X, at.Y)
	}
}

// toolReply is the answer of a tool.
type toolReply struct {
	Success bool
	Error   string
	Output  string
	Code    string
	State   string
	CallID  string `json:"call_id"`
	Parts   []struct {
		Type string
		MIME string `json:"mime_type"`
		Data []byte
		Size int
		URL  string
		Name string
	}
	Structured json.RawMessage
}

// agent calls a tool as an agent does.
func (s *phoneStage) agent(tool, args string) toolReply {
	s.Helper()
	status, raw := request(s, http.MethodPost, s.balancer+"/api/tools/"+tool+"/call", `{"timeout_ms":30000,"args":`+
		args+`}`)
	var r toolReply
	if err := json.Unmarshal(raw, &r); err != nil {
		s.Errorf("%s: %d %.200s (%v)", tool, status, raw, err)
	}
	return r
}

// works calls a tool that must answer.
func (s *phoneStage) works(tool, args string) toolReply {
	s.Helper()
	r := s.agent(tool, args)
	if !r.Success {
		s.Errorf("%s %s: %s %s", tool, args, r.Error, r.Code)
	}
	return r
}

// later calls a tool, and returns how to get its answer. Meanwhile the person does something.
func (s *phoneStage) later(tool, args string) (get func() toolReply) {
	s.Helper()
	answers := make(chan toolReply, 1)
	step := s.TB
	go func() {
		defer close(answers)
		status, raw, err := tryRequest(step, http.MethodPost, s.balancer+"/api/tools/"+tool+"/call",
			`{"timeout_ms":30000,"args":`+args+`}`)
		var r toolReply
		if json.Unmarshal(raw, &r) != nil || err != nil {
			r.Error = fmt.Sprintf("%d %.200s %v", status, raw, err)
		}
		answers <- r
	}()
	step.Cleanup(func() {
		select {
		case r := <-answers: // which the step did not get as far as to read
			step.Logf("%s answered %+v", tool, r)
		default:
		}
	})
	return func() toolReply {
		s.Helper()
		select {
		case r := <-answers:
			return r
		case <-time.After(waitLimit):
			s.Fatalf("%s has no answer", tool)
			return toolReply{}
		}
	}
}

// unasked waits until the person is no longer asked something.
func (s *phoneStage) unasked(text string) {
	s.Helper()
	s.until("not asked: "+text, `!document.querySelector(".prompts").innerText.includes(`+quoted(text)+`)`)
}

// used waits until a stand-in was used.
func (s *phoneStage) used(what string) {
	s.Helper()
	s.until("used: "+what, `used.includes(`+quoted(what)+`)`)
}

func (s *phoneStage) permit(name string, setting browser.PermissionSetting) {
	s.Helper()
	s.do(func(ctx context.Context) error { return s.tab.permit(ctx, s.url, name, setting) })
}

var shownCode = regexp.MustCompile(`[0-9A-Z]{4}-[0-9A-Z]{4}`)

// pairing: the page shows a code, which an approver types; then it keeps its own credential, which no script can read.
func (s *phoneStage) pairing() {
	s.permit("geolocation", "granted")
	s.do(func(ctx context.Context) error { return s.tab.locate(ctx, 48.2083, 16.3731) })
	s.size(360, "light")
	s.open(s.url + "/device")
	s.see("Use this device with agents", "What agents may use")
	s.pictures("welcome")
	s.fill("Name of this device", "Anna's phone")
	s.tap("Connect")
	s.see("Approve this device", "farhand pair approve ")
	s.pictures("pairing")
	code := shownCode.FindString(s.text())
	status, out, errOut := command(s.TB.(*testing.T),
		[]string{"FARHAND_URL=" + s.balancer, "FARHAND_TOKEN=" + fleetToken}, "pair", "approve", code)
	if status != 0 || !strings.Contains(out, "approved") {
		s.Fatalf("not approved: %d %s%s", status, out, errOut)
	}
	s.see("Connected", "No agent does anything here")
	kept := eval[string](s.pageBrowser, `new Promise((resolve, reject) => {
		const opening = indexedDB.open("farhand device");
		opening.onsuccess = () => {
			const asked = opening.result.transaction("kept").objectStore("kept").get("credential");
			asked.onsuccess = () => {
				const {token, key} = asked.result;
				opening.result.close();
				const found = [location.href, document.cookie, ...Object.values(localStorage), ...Object.values(sessionStorage),
					...performance.getEntries().map(e => e.name)].some(e => e.includes(token.slice(8)));
				crypto.subtle.exportKey("pkcs8", key).then(() => resolve("exported"), () => resolve(
					[token.slice(0, 4), key.algorithm.name, key.extractable, found].join(" ")));
			};
		};
	})`)
	if kept != "fhd_ Ed25519 false false" {
		s.Errorf("the credential: %s", kept)
	}
}

// pictures writes pictures of what is shown on a phone and on a desk, in both themes, if they are wanted.
func (s *phoneStage) pictures(name string) {
	s.Helper()
	for _, width := range s.widths(1280, 360) {
		for _, theme := range []string{"dark", "light"} {
			s.size(width, theme)
			s.fits(name, width)
			s.picture(fmt.Sprintf("device-%s-%d-%s", name, width, theme))
		}
	}
}

// everyTool is what the page offers in this browser.
const everyTool = "ask_person notify show open_url share camera_list camera_snap camera_clip screen_record " +
	"microphone_level audio_clip speak listen location_get motion battery clipboard_read clipboard_write vibrate " +
	"wake_lock canvas_present canvas_hide canvas_navigate canvas_eval canvas_snapshot canvas_a2ui_push " +
	"canvas_a2ui_reset"

// listed: agents see each tool with the level and hints of docs/devices.md.
func (s *phoneStage) listed() {
	confirmed := " camera_list camera_snap camera_clip screen_record location_get canvas_eval microphone_level " +
		"audio_clip listen clipboard_read "
	_, raw := request(s, http.MethodGet, s.balancer+"/api/tools", "")
	var list struct {
		Tools []struct {
			Name        string
			Level       string `json:"security_level"`
			Annotations struct {
				ReadOnly    *bool `json:"readOnlyHint"`
				Destructive *bool `json:"destructiveHint"`
			}
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		s.Fatal(err)
	}
	seen := map[string]bool{}
	for _, tool := range list.Tools {
		if !strings.Contains(everyTool, tool.Name) {
			continue
		}
		seen[tool.Name] = true
		if is := tool.Level == "user_confirm"; is != strings.Contains(confirmed, " "+tool.Name+" ") {
			s.Errorf("%s has the level %q", tool.Name, tool.Level)
		}
		if tool.Annotations.ReadOnly == nil || tool.Annotations.Destructive == nil {
			s.Errorf("%s does not say what it does", tool.Name)
		}
	}
	for name := range strings.FieldsSeq(everyTool) {
		if !seen[name] {
			s.Errorf("%s is not offered", name)
		}
	}
}
