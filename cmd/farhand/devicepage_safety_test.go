package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"

	"github.com/farhand/farhand/internal/testkit"
)

// lockedIn: code on the canvas reaches nothing of the page's origin.
func (s *phoneStage) lockedIn() {
	for code, want := range map[string]string{
		"parent.document.title":                      "SecurityError",
		"parent.location.href":                       "SecurityError",
		"parent.localStorage":                        "SecurityError",
		"parent.used":                                "SecurityError",
		"frameElement":                               "null",
		"document.cookie":                            "SecurityError",
		"localStorage.length":                        "SecurityError",
		"sessionStorage.length":                      "SecurityError",
		"indexedDB.databases()":                      "SecurityError",
		"caches.keys()":                              "SecurityError",
		"navigator.serviceWorker.getRegistrations()": "SecurityError",
		"self.origin":                                "null",
		"fetch('/api/me')":                           "TypeError",
		"fetch('/api/me', {mode: 'no-cors'})":        "TypeError",
		"new WebSocket('/ws/chat').url":              "",
		"new Promise(no => { const s = new XMLHttpRequest(); s.onerror = () => no('refused'); s.open('GET', " +
			"'/api/me'); s.send() })": "refused",
		"navigator.mediaDevices.getUserMedia({video: true})":                                                        "SecurityError",
		"new Promise(no => navigator.geolocation.getCurrentPosition(() => no('found'), e => no('code ' + e.code)))": "code 1",
		"navigator.clipboard.readText()":                                                                            "NotAllowedError",
		"open('/console/') === null":                                                                                "true",
		"top.location = '/console/'":                                                                                "SecurityError",
		"new Promise(async ok => { const f = document.createElement('iframe'); f.src = '/console/'; f.onload = " +
			"() => { try { ok(f.contentDocument.title) } catch (e) { ok(String(e)) } }; document.body.append(f) })": "null",
	} {
		code = "(async () => { try { return String(await (" + code + ")) } catch (e) { return e.name } })()"
		r := s.works("canvas_eval", `{"javaScript":`+quoted(code)+`}`)
		if !strings.Contains(r.Output, want) || want == "" && strings.Contains(r.Output, "open") {
			s.Errorf("%s: %q, want %s", code, r.Output, want)
		}
	}
	// Messages to the page do nothing but answer, and only what was asked.
	s.works("canvas_eval", `{"javaScript":"parent.postMessage({id: 1, ok: true, value: 'x'}, '*');`+
		`parent.postMessage({tap: '<img src=x onerror=alert(1)>'}, '*'); parent.postMessage(null, '*'); 1"}`)
	s.see("You tapped “<img src=x onerror=alert(1)>” on the canvas")
	headers := map[string]string{}
	resp, err := http.Get(s.url + "/device/canvas")
	if err != nil {
		s.Fatal(err)
	}
	resp.Body.Close()
	for name := range resp.Header {
		headers[name] = resp.Header.Get(name)
	}
	policy := headers["Content-Security-Policy"]
	if !strings.Contains(policy, "sandbox allow-scripts") || strings.Contains(policy, "allow-same-origin") ||
		!strings.Contains(policy, "frame-ancestors 'self'") ||
		!strings.Contains(headers["Permissions-Policy"], "camera=()") {
		s.Errorf("the canvas is served with %v", headers)
	}
	s.works("canvas_a2ui_reset", `{}`)
	s.works("canvas_hide", `{}`)
	s.forgiven()
}

// injections: texts of agents are shown as they are, wherever the page shows them.
func (s *phoneStage) injections() {
	i := 0
	for some := range slices.Chunk(append(hostileTexts(), "\u202egnp.exe", "a\u0000b\u2028c"), 26) {
		i++
		all := strings.Join(some, "\n")
		all = quoted(all[:min(len(all), 1000)])
		choices := make([]string, 0, 12)
		for _, text := range some[:11] {
			choices = append(choices, text[:min(len(text), 120)])
		}
		list, _ := json.Marshal(append(choices[:min(len(choices), 11)], fmt.Sprintf("continue %d", i)))
		s.works("notify", fmt.Sprintf(`{"title":%s,"body":%s}`, quoted(choices[0]), all))
		s.works("show", fmt.Sprintf(`{"title":%s,"text":%s,"latitude":1,"longitude":2,"label":%s}`, quoted(choices[1]),
			all, quoted(choices[2])))
		get := s.later("ask_person", fmt.Sprintf(`{"question":%s,"choices":%s,"text":true,"placeholder":%s}`, all, list,
			quoted(choices[3])))
		if i == 1 {
			s.movingButtons()
		}
		s.tap(fmt.Sprintf("continue %d", i))
		get()
		for _, text := range some[:4] {
			if r := s.agent("open_url", `{"url":`+quoted(text)+`}`); r.Success {
				s.Errorf("opened %s", text)
			}
		}
	}
	if strange := eval[int](s.pageBrowser, `document.querySelectorAll(
		".page script, .page [onerror], .page [onload], .page iframe[srcdoc], .page math, .page a[href^=javascript]").length`); strange > 0 {
		s.Errorf("%d elements are of agents", strange)
	}
	s.works("show", `{}`)
}

// movingButtons: buttons that move, as when a question above them leaves, take no tap.
func (s *phoneStage) movingButtons() {
	s.until("the buttons are ready", `document.querySelector(".prompt .choices:first-of-type button:enabled")`)
	eval[bool](s.pageBrowser, `(() => {
		const card = document.querySelector(".prompt");
		window.shake = setInterval(() => card.style.transform = card.style.transform ? "" : "translateY(12px)", 20);
		return true;
	})()`)
	s.until("buttons that move are disabled", `!document.querySelector(".prompt .choices:first-of-type button:enabled")`)
	eval[bool](s.pageBrowser, `(clearInterval(window.shake), document.querySelector(".prompt").style.transform = "", true)`)
}

// hostileCanvas: documents that are endless, deep or large, and code that lies to the page, stop neither the page nor
// the next agent.
func (s *phoneStage) hostileCanvas() {
	const surface = `{"version":"v0.9","createSurface":{"surfaceId":"main","catalogId":"https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"}}`
	var deep, wide, ids []string
	for i := range 3000 {
		deep = append(deep, fmt.Sprintf(`{"id":"c%d","component":"Column","children":["c%d"]}`, i, i+1))
		wide = append(wide, fmt.Sprintf(`{"id":"c%d","component":"Text","text":"text %d"}`, i, i))
		ids = append(ids, fmt.Sprintf(`"c%d"`, i))
	}
	push := func(lines string) { // whether it works does not matter
		request(s, http.MethodPost, s.pods[0].url+"/api/tools/canvas_a2ui_push/call",
			`{"timeout_ms":2000,"args":{"jsonl":`+quoted(lines)+`}}`)
	}
	for _, components := range map[string]string{
		"endless": `{"id":"root","component":"Column","children":["root"]}`,
		"deep":    `{"id":"root","component":"Column","children":["c0"]},` + strings.Join(deep, ","),
		"wide": `{"id":"root","component":"Column","children":[` + strings.Join(ids, ",") + `]},` +
			strings.Join(wide, ","), "texts": `{"id":"root","component":"Text","text":` +
			quoted(strings.Join(hostileTexts(), "\n")) + `}`,
	} {
		lines := surface + "\n" +
			`{"version":"v0.9","updateComponents":{"surfaceId":"main","components":[` + components + `]}}`
		push(lines)
		s.works("show", `{}`)
		s.works("canvas_a2ui_reset", `{}`)
		s.works("canvas_eval", `{"javaScript":"1 + 1"}`)
	}
	push(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000))
	s.works("canvas_a2ui_reset", `{}`)
	// Code on the canvas answers in place of the frame, and makes up taps.
	eval[bool](s.pageBrowser, `(() => {
		const make = URL.createObjectURL;
		window.types = [];
		URL.createObjectURL = blob => (types.push(blob.type), make(blob));
		return true;
	})()`)
	s.works("canvas_eval", `{"javaScript":`+quoted(`addEventListener("message", e => parent.postMessage({id: e.data.id, ok: true,
		value: new Blob(["<script>alert(1)</script>"], {type: "text/html"})}, "*")); 1`)+`}`)
	if r := s.works("canvas_snapshot", `{}`); len(r.Parts) != 1 || r.Parts[0].MIME != "image/jpeg" {
		s.Errorf("a false picture: %+v", r.Parts)
	}
	if types := eval[string](s.pageBrowser, "window.types.join()"); types != "image/jpeg" {
		s.Errorf("the page shows files of the types %s", types)
	}
	s.works("canvas_a2ui_reset", `{}`)
	s.works("canvas_eval", `{"javaScript":"for (let i = 0; i < 500; i++) parent.postMessage({tap: 'made up'}, '*'); 1"}`)
	s.works("show", `{"title":"after the taps"}`)
	s.works("show", `{}`)
	if n := s.logged("made up"); n > 3 { // taps after each other are one
		s.Errorf("code on the canvas filled the log with %d taps", n)
	}
	s.works("canvas_a2ui_reset", `{}`)
	s.works("canvas_hide", `{}`)
	s.forgiven()
}

// asker returns what calls a tool as an agent whose calls need approval, and says how that ended.
func (s *phoneStage) asker() func(tool, args string) chan string {
	s.Helper()
	_, raw := request(s, http.MethodPost, s.balancer+"/api/keys", `{"name":"agent","roles":["caller"]}`)
	var key struct{ Key string }
	if err := json.Unmarshal(raw, &key); err != nil {
		s.Fatalf("no key: %s", raw)
	}
	return func(tool, args string) chan string {
		answer := make(chan string, 1)
		go func() {
			req, _ := http.NewRequest(http.MethodPost, s.balancer+"/api/tools/"+tool+"/call",
				strings.NewReader(`{"args":`+args+`}`))
			req.Header.Set("Authorization", "Bearer "+key.Key)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer resp.Body.Close()
			var r toolReply
			_ = json.NewDecoder(resp.Body).Decode(&r)
			answer <- fmt.Sprintf("%d %v %d", resp.StatusCode, r.Success, len(r.Parts))
		}()
		return answer
	}
}

// approval: the person at the device decides about a call that needs approval, with everything it has.
func (s *phoneStage) approval() {
	call := s.asker()
	allowed := call("camera_snap", `{"facing":"front"}`)
	s.see("Allow “Take pictures”?", `"facing": "front"`, "Always allow this")
	s.pictures("approval")
	s.accessible("an approval")
	s.tap("Allow once")
	if got := <-allowed; got != "200 true 1" {
		s.Errorf("allowed: %s", got)
	}
	denied := call("camera_snap", `{"facing":"front"}`)
	s.tap("Deny")
	if got := <-denied; strings.Contains(got, "true") {
		s.Errorf("denied: %s", got)
	}
	s.unasked("Always allow this")
}

// hostileApproval: code with all texts is asked about as the agent wrote it, and allowed for the canvas alone.
func (s *phoneStage) hostileApproval() {
	code := "/*" + strings.Join(hostileTexts(), "\n") + "\u202e*/ 6 * 7"
	var args strings.Builder
	exact := json.NewEncoder(&args)
	exact.SetEscapeHTML(false)
	if err := exact.Encode(map[string]string{"javaScript": code}); err != nil {
		s.Fatal(err)
	}
	allowed := s.asker()("canvas_eval", args.String())
	s.see("Always allow this", "invisible")
	if !eval[bool](s.pageBrowser, `(shown => JSON.parse(shown).javaScript === `+quoted(code)+` && !shown.includes("\u202e"))(
		document.querySelector(".prompt pre").textContent)`) {
		s.Error("the code is not shown as it is")
	}
	if strange := eval[int](s.pageBrowser,
		`document.querySelectorAll(".prompt :not(header, span, time, h2, p, pre, div, button)").length`); strange > 0 {
		s.Errorf("%d elements are of the agent", strange)
	}
	s.tap("Allow once")
	if got := <-allowed; got != "200 true 0" {
		s.Errorf("allowed: %s", got)
	}
	s.works("canvas_a2ui_reset", `{}`)
}

// offers waits until agents see a tool, or no longer see it.
func (s *phoneStage) offers(tool string, want bool) {
	s.Helper()
	eventually(s, waitLimit, fmt.Sprintf("%s is offered: %v", tool, want), func() bool {
		_, raw := request(s, http.MethodGet, s.balancer+"/api/tools", "")
		return strings.Contains(string(raw), `"name":"`+tool+`"`) == want
	})
}

func (s *phoneStage) switchedOff() {
	s.tap("Sensors")
	s.tap("Battery")
	s.offers("battery", false)
	if r := s.agent("battery", `{}`); r.Code != "tool_not_found" {
		s.Errorf("switched off: %+v", r)
	}
	s.openAgain()
	s.see("Connected")
	s.offers("battery", false)
	s.tap("Sensors")
	s.tap("Battery")
	s.offers("battery", true)
}

func (s *phoneStage) denied() {
	s.permit("geolocation", browser.PermissionSettingDenied)
	s.offers("location_get", false)
	s.see("You denied it. Allow it in the browser's settings for this page.")
	s.permit("geolocation", browser.PermissionSettingGranted)
	s.offers("location_get", true)
}

// phoneLooks: pictures of all that is shown at once, and what axe says.
func (s *phoneStage) phoneLooks() {
	eval[bool](s.pageBrowser, `(document.querySelectorAll("details").forEach(d => { d.open = true }), true)`)
	for _, theme := range []string{"dark", "light"} {
		s.size(360, theme)
		s.accessible("the page, " + theme)
	}
	s.pictures("tools")
	s.size(320, "light")
	s.fits("the page", 320)
	s.size(3840, "light")
	s.fits("the page", 3840)
	s.size(360, "light")
	eval[bool](s.pageBrowser, `(document.querySelectorAll("details").forEach(d => { d.open = false }), true)`)
	s.pictures("connected")
	eval[bool](s.pageBrowser, `(document.querySelector(".log").scrollIntoView(), true)`)
	s.pictures("log")
	eval[bool](s.pageBrowser, `window.reached = new Set(), true`)
	s.tabs(30)
	if missed := eval[[]string](s.pageBrowser, `[...document.querySelectorAll("button, summary")].filter(e => e.offsetParent && !reached.has(e))
		.map(e => e.innerText)`); len(missed) > 0 {
		s.Errorf("the keyboard does not reach %q", missed)
	}
}

// stop ends a call, and the page stays stopped over a reload.
func (s *phoneStage) stop() {
	clip := s.later("camera_clip", `{"duration_ms":60000}`)
	question := s.later("ask_person", `{"question":"Still there?"}`)
	s.see("Records video", "Still there?")
	s.until("the camera is on", `document.querySelector("progress")?.value > 0`)
	s.tap("Stop")
	for what, get := range map[string]func() toolReply{"clip": clip, "question": question} {
		if r := get(); r.Success || !strings.Contains(r.Error, "the device stopped") {
			s.Errorf("%s: %+v", what, r)
		}
	}
	s.see("Agents cannot reach this device until you start again")
	s.pictures("stopped")
	s.offers("ask_person", false)
	s.openAgain()
	s.see("Agents cannot reach this device until you start again")
	s.offers("ask_person", false)
	s.tap("Start")
	s.see("Connected")
	s.offers("ask_person", true)
}

// reload in the middle of a call: its caller learns that, and nothing runs twice.
func (s *phoneStage) reload() {
	get := s.later("ask_person", `{"question":"Before the reload?"}`)
	s.see("Before the reload?")
	s.openAgain()
	if r := get(); r.Success || !strings.Contains(r.Error, "restarted during this call") {
		s.Errorf("reloaded: %+v", r)
	}
	s.see("Connected")
	s.unasked("Before the reload?")
}

// networkFails in the middle of a call: the answer comes over the next connection.
func (s *phoneStage) networkFails() {
	get := s.later("ask_person", `{"question":"While the network is away?","choices":["It came through"]}`)
	s.see("While the network is away?")
	s.network.Stop()
	s.see("The gateway cannot be reached")
	s.pictures("reconnecting")
	s.tap("It came through")
	if err := s.network.Start(); err != nil {
		s.Fatal(err)
	}
	if r := get(); !strings.Contains(r.Output, "It came through") {
		s.Errorf("answered without a network: %+v", r)
	}
	s.see("Connected")
	if asked := s.logged("While the network is away?"); asked != 1 {
		s.Errorf("the call ran %d times", asked)
	}
}

// servingPodDies in the middle of a call that came through the other pod: the device moves, and its answer is recorded.
func (s *phoneStage) servingPodDies() {
	_, raw := request(s, http.MethodGet, s.balancer+"/api/sessions", "")
	var list struct {
		Sessions []struct {
			Pod  string
			Name string
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Sessions) != 1 {
		s.Fatalf("sessions: %s", raw)
	}
	dying, other := s.pods[0], s.pods[1]
	if other.id == list.Sessions[0].Pod {
		dying, other = other, dying
	}
	status, raw := request(s, http.MethodPost, other.url+"/api/tools/ask_person/call",
		`{"mode":"async","args":{"question":"Which pod is gone?","choices":["The other one"]}}`)
	var call toolReply
	if err := json.Unmarshal(raw, &call); err != nil || status != http.StatusAccepted {
		s.Fatalf("an asynchronous call: %d %s", status, raw)
	}
	s.see("Which pod is gone?")
	dying.signal(syscall.SIGKILL)
	<-dying.done
	s.tap("The other one")
	eventually(s, waitLimit, "the record has the answer", func() bool {
		_, raw := request(s, http.MethodGet, other.url+"/api/calls/"+call.CallID, "")
		return strings.Contains(string(raw), "The other one")
	})
	s.offers("ask_person", true)
	if asked := s.logged("Which pod is gone?"); asked != 1 {
		s.Errorf("the call ran %d times", asked)
	}
}

// logged returns how many calls with a text the page has written down.
func (s *phoneStage) logged(text string) int {
	return eval[int](s.pageBrowser, `JSON.parse(localStorage.getItem("farhand device log")).filter(e => e.text.includes(`+
		quoted(text)+`)).length`)
}

// anotherTab of the same browser is the same device: one of them at a time.
func (s *phoneStage) anotherTab() {
	ctx, end := chromedp.NewContext(s.ctx)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		s.Fatal(err)
	}
	second := &phoneStage{pageBrowser: &pageBrowser{TB: s.TB, parentTB: s.parentTB, ctx: ctx, tab: chromiumTab{}}}
	second.open(s.url + "/device")
	second.see("Another tab of this browser is connected")
	second.press("Use this tab")
	second.see("Connected", "No agent does anything")
	s.see("Connected in another tab")
	s.tap("Use this tab")
	s.see("No agent does anything")
	second.see("Connected in another tab")
}

// offline: the page itself opens without a network, and connects when there is one.
func (s *phoneStage) offline() {
	s.until("the service worker has the page", `caches.match("/device")`)
	s.network.Stop()
	s.openAgain()
	s.see("The gateway cannot be reached")
	s.until("the page's icon", `document.querySelector("header img").naturalWidth > 0`)
	if kept := eval[string](s.pageBrowser, `caches.open("farhand-device-1").then(c => c.keys()).then(all => all.map(r => new URL(r.url).pathname)
		.filter(path => !/^\/(device|assets\/.*|icon.*|device.webmanifest)$/.test(path)).join())`); kept != "" {
		s.Errorf("the cache has %s", kept)
	}
	if err := s.network.Start(); err != nil {
		s.Fatal(err)
	}
	s.see("Connected")
	s.offers("ask_person", true)
	s.forgiven()
}

// revoked: the page says so, and pairs again as another device.
func (s *phoneStage) revoked() {
	env := []string{"FARHAND_URL=" + s.balancer, "FARHAND_TOKEN=" + fleetToken}
	if status, _, errOut := command(s.TB.(*testing.T), env, "devices", "revoke", s.deviceID()); status != 0 {
		s.Fatal(errOut)
	}
	s.see("An administrator ended this session")
	s.tap("Start")
	s.see("The gateway does not accept this device any more")
	s.pictures("revoked")
	s.tap("Pair again")
	s.see("Approve this device")
	s.tap("Cancel")
	s.see("Agents cannot reach this device")
}

// insecure: over plain HTTP from elsewhere the page says what is missing, and the rest works. On a gateway without a
// token there is nothing to pair.
func (s *phoneStage) insecure() {
	s.open(strings.Replace(s.url, "127.0.0.1", "phone.example", 1) + "/device")
	s.see("This page is not secure")
	s.tap("Camera and screen")
	s.see("Needs a secure page (https)")
	s.pictures("insecure")
	s.accessible("an insecure page")
	s.tap("Connect")
	s.see("Approve this device")
	code := shownCode.FindString(s.text())
	env := []string{"FARHAND_URL=" + s.balancer, "FARHAND_TOKEN=" + fleetToken}
	if status, _, errOut := command(s.TB.(*testing.T), env, "pair", "approve", code); status != 0 {
		s.Fatal(errOut)
	}
	s.see("No agent does anything")
	s.offers("ask_person", true)
	get := s.later("ask_person", `{"question":"On an insecure page?","choices":["Works"]}`)
	s.tap("Works")
	if r := get(); !r.Success {
		s.Errorf("insecure: %+v", r)
	}
	s.offers("camera_snap", false)
	s.forgiven() // headers that insecure pages cannot have

	s.balancer = startPodAt(s.parentTB, testkit.FreeAddr(s), "FARHAND_TOKEN=").url
	s.open(s.balancer + "/device")
	s.tap("Connect")
	s.see("No agent does anything")
	s.offers("camera_snap", true)
	s.gone("may not trust the gateway's certificate")
	s.tap("Stop")
}

// clickedThrough: behind a certificate that the person only clicked through, the page says what Chromium refuses it,
// and works without that.
func (s *phoneStage) clickedThrough() {
	gateway, err := url.Parse(s.balancer)
	if err != nil {
		s.Fatal(err)
	}
	front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(gateway))
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // TLS handshakes that Chromium breaks off
	front.StartTLS()
	s.parentTB.Cleanup(front.Close)
	s.url = front.URL
	ctx, cancel := context.WithTimeout(s.ctx, waitLimit)
	defer cancel()
	if err := s.tab.navigate(ctx, s.url+"/device"); err == nil {
		s.Fatal("Chromium trusts the certificate of the test")
	}
	s.until("the warning is clicked through", `document.querySelector("#proceed-link")?.click(), location.pathname === "/device"`)
	s.see("This browser may not trust the gateway's certificate", "cannot be installed")
	s.forgiven() // what Chromium reports about its own warning, if a click comes while that leaves
	s.pictures("untrusted")
	s.accessible("a page with an untrusted certificate")
	s.tap("Connect")
	s.see("No agent does anything")
	s.offers("camera_snap", true)
	get := s.later("ask_person", `{"question":"Behind this certificate?","choices":["Works"]}`)
	s.tap("Works")
	if r := get(); !r.Success {
		s.Errorf("behind an untrusted certificate: %+v", r)
	}
}
