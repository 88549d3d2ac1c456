package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
)

// asked makes a call that needs approval, as the robot, and returns its id and the approval's.
func (s *adminStage) asked(args string) (call, approval string) {
	s.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+"/api/sessions/anna/tools/pay/call",
		strings.NewReader(`{"mode":"async","args":`+args+`}`))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.robot)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		CallID     string `json:"call_id"`
		ApprovalID string `json:"approval_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		s.Fatal(err)
	}
	return answer.CallID, answer.ApprovalID
}

// ended returns the state of a call and what stands in its record.
func (s *adminStage) ended(call string) (state, detail string) {
	s.Helper()
	var record struct {
		State   string
		Problem struct{ Detail string }
	}
	getJSON(s, s.url+"/api/calls/"+call+"?wait_ms=20000", &record)
	return record.State, record.Problem.Detail
}

func (s *adminStage) touch(on bool) {
	s.Helper()
	tellBrowser(s.pageBrowser, emulation.SetTouchEmulationEnabled,
		emulation.SetTouchEmulationEnabledParams{Enabled: on})
	s.finger = on
}

// countDecisions makes the page count the decisions that it sends, in window.decisions.
const countDecisions = `(() => {
	window.decisions = 0;
	const send = window.fetch;
	window.fetch = (to, how) => {
		if (how?.method === "POST" && String(to).startsWith("/api/approvals/")) window.decisions++;
		return send(to, how);
	};
	return true;
})()`

func (s *adminStage) approveOnPhone() {
	s.size(360, "light")
	s.touch(true)
	s.view("/approvals")
	s.see("Nothing waits for a decision")
	var args strings.Builder
	plain := json.NewEncoder(&args)
	plain.SetEscapeHTML(false)
	long := strings.Repeat("long ", 200)
	if err := plain.Encode(map[string]any{"to": "Ann\u202e", "texts": nasty, "long": long}); err != nil {
		s.Fatal(err)
	}
	call, id := s.asked(args.String())
	s.see("pay")
	s.until("the request in the list", `(() => {
		document.querySelector('a.row[href$="`+id+`"]')?.click();
		return document.querySelector("h1.mono");
	})()`)
	s.see("Money "+nasty[0]+" leaves the house.", "bob", "robot", "Anna's phone", "money", `\u202e`, nasty[1],
		"invisible or reordering", "min left", "The tool declares", "Reaches other systems",
		"Permission: bank", "High cost", "About 2 s")
	_, raw := request(s, http.MethodGet, s.url+"/api/approvals/"+id, "")
	const declared = `"effects":{"class":"external","permission":"bank","cost":"high","typical_ms":2000}`
	if !strings.Contains(string(raw), declared) {
		s.Errorf("no %s in %s", declared, raw)
	}
	eval[bool](s.pageBrowser, countDecisions)
	s.thumb()
	// Buttons that move, as when a page shifts below a finger, decide nothing; nor do clicks of a script.
	eval[bool](s.pageBrowser, `(() => {
		const bar = document.querySelector(".decide");
		window.shake = setInterval(() => bar.style.transform = bar.style.transform ? "" : "translateY(12px)", 20);
		return true;
	})()`)
	s.until("buttons that move are inert", `(() => {
		window.aim = [...document.querySelectorAll(".decide button")].find(e => e.innerText === "Allow once");
		return window.aim?.getAttribute("aria-disabled") === "true";
	})()`)
	s.tapAim()
	eval[bool](s.pageBrowser, `(clearInterval(window.shake), window.aim.click(), true)`)
	s.until("the buttons are armed", `window.aim.getAttribute("aria-disabled") !== "true"`)
	eval[bool](s.pageBrowser, `(window.aim.click(), true)`)
	if n := eval[int](s.pageBrowser, "window.decisions"); n != 0 {
		s.Fatalf("%d decisions were made that no person made", n)
	}
	s.picture("approval-360-light")
	s.accessible("a request on a phone")
	s.click("Allow once")
	s.see("Allowed. The call runs.", "by token")
	if state, detail := s.ended(call); state != "succeeded" {
		s.Errorf("the call is %s: %s", state, detail)
	}
	s.fits("a decided request", 360)
}

// thumb checks that the buttons can be reached with a thumb while a long request is shown.
func (s *adminStage) thumb() {
	s.Helper()
	small := eval[[]string](s.pageBrowser, `[...document.querySelectorAll(".decide button")].filter(e => {
		const box = e.getBoundingClientRect();
		return box.height < 44 || box.width < 44 || box.bottom > innerHeight || box.top < innerHeight / 2;
	}).map(e => e.innerText)`)
	if len(small) > 0 {
		s.Errorf("out of reach of a thumb: %q", small)
	}
}

func (s *adminStage) always() {
	_, id := s.asked(`{"to":"Ben"}`)
	s.view("/approvals/" + id)
	s.see("Ben")
	s.click("Always…")
	s.fill("Which calls", "tool")
	s.fill("For how long", "hour")
	s.click("Allow always")
	s.see("Allowed. The call runs.")
	call, none := s.asked(`{"to":"Cid"}`)
	if state, detail := s.ended(call); state != "succeeded" || none != "" {
		s.Errorf("a granted call: %s %s %q", state, detail, none)
	}
	s.view("/approvals/grants")
	s.see("pay", "phone-1", "bob", "Any")
	s.fits("grants", 360)
	s.click("Take back")
	s.see("need approval again")
	s.click("Take back")
	s.see("No grants")
}

func (s *adminStage) deny() {
	call, id := s.asked(`{"to":"Dan"}`)
	s.view("/approvals/" + id)
	s.see("Dan")
	s.fill("Comment", "Too much "+nasty[0])
	s.click("Deny")
	s.see("Denied. The call does not run.", "Too much "+nasty[0])
	if state, detail := s.ended(call); state != "rejected" || !strings.Contains(detail, "Too much "+nasty[0]) {
		s.Errorf("%s %s", state, detail)
	}
	_, id = s.asked(`{"to":"Eve"}`)
	s.view("/approvals/" + id)
	s.see("Eve")
	if a := callTool(s, s.url, "/api/approvals/"+id, `{"decision":"deny"}`); a.status != http.StatusOK {
		s.Error(a)
	}
	s.see("Denied") // by another person, while it is shown
}

// notifications: the browser tells of new requests when the page is hidden, without their arguments.
func (s *adminStage) notifications() {
	s.touch(false)
	s.size(1280, "light")
	s.view("/approvals")
	tellBrowser(s.pageBrowser, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingGranted,
		Origin: s.url,
	})
	s.see("Nothing waits")
	s.press("Notify me")
	s.see("Notifications are on")
	eval[bool](s.pageBrowser, `(() => {
		window.notes = [];
		window.Notification = class { constructor(title, more) { window.notes.push(title + " " + JSON.stringify(more)); } };
		Object.defineProperty(document, "hidden", {get: () => true, configurable: true});
		return true;
	})()`)
	_, id := s.asked(`{"to":"Fay"}`)
	s.until("a notification", "window.notes.length > 0")
	note := eval[string](s.pageBrowser, "window.notes.join()")
	if !strings.Contains(note, "pay waits for approval") || !strings.Contains(note, "phone") ||
		strings.Contains(note, "Fay") {
		s.Error(note)
	}
	callTool(s, s.url, "/api/approvals/"+id, `{"decision":"deny"}`)
	s.view("/approvals")
	s.see("Notifications are on")
	s.press("Switch off")
	s.see("Notify me")
}
