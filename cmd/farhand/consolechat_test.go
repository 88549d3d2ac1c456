package main

import (
	"encoding/json"
)

func (s *adminStage) chat() {
	s.view("/chat")
	s.see("Anna's phone", "Desk", "Choose a device")
	s.view("/chat/anna")
	s.see("Say something")
	s.fill("Message", "Please pay Ann.")
	s.press("Send")
	s.see("I pay now.", "Money "+nasty[0]+" leaves the house.", `"amount": 12`)
	s.picture("chat-asks-1280-light")
	s.click("Allow once")
	s.until("bold text", `[...document.querySelectorAll(".markdown strong")].some(e => e.innerText === "paid")`)
	s.until("the conversation is read again", `document.querySelector(".bubble.user time")`)
	s.see("It is paid.", "Approved", nasty[0], nasty[1], nasty[6], nasty[8])
	bad := eval[[]string](s.pageBrowser, `[...document.querySelectorAll(".markdown *")].filter(e =>
		!/^(P|BR|STRONG|EM|UL|OL|LI|CODE|PRE|A|TABLE|THEAD|TBODY|TR|TH|TD|H4|H5|H6|DEL|HR|BLOCKQUOTE)$/.test(e.tagName) ||
		e.tagName === "A" && !/^(https?|mailto):/.test(e.href) && e.href !== "").map(e => e.outerHTML)`)
	if len(bad) > 0 {
		s.Errorf("Markdown became %q", bad)
	}
	s.fill("Message", "A picture, please.")
	s.press("Send")
	s.see("Here is the picture.")
	s.until("the picture", `[...document.querySelectorAll(".parts img")].some(e => e.naturalWidth > 0)`)
	if n := eval[int](s.pageBrowser, `document.querySelectorAll(".parts img").length`); n != 1 {
		s.Errorf("%d pictures: a drawing with scripts must not be one", n)
	}
	s.fill("Message", "And pay once more, to Ann.")
	s.press("Send")
	s.see("Where the values come from", "camera_snap")
	s.click("Deny")
	s.see("The person denied it.")
}

func (s *adminStage) turns() {
	turnOverHTTP(s, s.pods[1].url, "anna", "hello from another place")
	s.see("hello from another place", "You said: hello from another place")
	s.fill("Message", "wait for me")
	s.press("Send")
	s.see("I begin")
	s.press("Stop")
	s.see("The turn was stopped", "Interrupted")
	close(s.held)
	s.fill("Message", "again")
	s.press("Send")
	s.see("You said: again")
	s.until("the turn is over", `[...document.querySelectorAll("button")].some(e => e.innerText === "Answer again")`)
	s.press("Answer again")
	s.until("answered again", `[...document.querySelectorAll(".bubble.assistant")].filter(e =>
		e.innerText.includes("You said: again")).length === 1`)
	s.until("and read again", `![...document.querySelectorAll("button")].some(e => e.innerText === "Stop")`)
}

// saved makes the page keep the next file that it saves in window.saved.
const saved = `(() => {
	URL.createObjectURL = blob => { blob.text().then(text => window.saved = text); return "#"; };
	return true;
})()`

func (s *adminStage) exportChat() {
	eval[bool](s.pageBrowser, saved)
	s.press("Export JSON")
	s.until("a file", "window.saved")
	var t struct{ Messages []struct{ Content string } }
	if err := json.Unmarshal([]byte(eval[string](s.pageBrowser, "window.saved")), &t); err != nil ||
		len(t.Messages) < 8 {
		s.Errorf("%v: %d messages", err, len(t.Messages))
	}
	s.press("Export Markdown")
	s.until("another file", `window.saved.includes("## Assistant") && window.saved.includes("Please pay Ann.")`)
}
