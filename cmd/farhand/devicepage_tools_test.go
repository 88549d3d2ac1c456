package main

import (
	"bytes"
	"fmt"
	"image"
	_ "image/jpeg"
	"net/http"
	"strings"
)

// callTools: the tools that need no person and return no file.
func (s *phoneStage) callTools() {
	has := func(tool, args string, wants ...string) {
		s.Helper()
		r := s.works(tool, args)
		for _, want := range wants {
			if !strings.Contains(r.Output, want) {
				s.Errorf("%s: %.300s, want %s", tool, r.Output, want)
			}
		}
	}
	has("location_get", `{}`, `"latitude":48.2083`, `"longitude":16.3731`, `"source":"browser"`)
	has("motion", `{}`, `"z":9.81`, `"strongest_acceleration":5`, `"beta":1`)
	has("battery", `{}`, `"level":`, `"charging":`)
	has("microphone_level", `{}`, `"level_dbfs":`, `"peak_dbfs":`)
	has("camera_list", `{}`, `"id":`, `"facing":`, `"name":"fake_device_0"`)
	has("clipboard_write", `{"text":"copied by an agent"}`, "copied")
	has("clipboard_read", `{}`, `"text":"copied by an agent"`)
	has("vibrate", `{"pattern":[20,10,20]}`, "vibrated")
	s.used("vibrate 20,10,20")
	has("speak", `{"text":"Good evening"}`, "spoken")
	s.used("speak Good evening")
	has("listen", `{}`, `"text":"good evening"`)
	has("wake_lock", `{"on":true}`, "stays on")
	s.see("The screen stays on")
	has("wake_lock", `{"on":false}`, "may go dark")
	s.used("released")

	has("show", `{"title":"Meeting point","text":"By the fountain, at noon.","latitude":48.2083,"longitude":16.3731,`+
		`"label":"Vienna","picture":"data:image/png;base64,`+onePixel+`"}`, "shown")
	s.see("Meeting point", "By the fountain", "Vienna", "48.20830, 16.37310")
	s.until("the coasts", `document.querySelector(".map .land").getAttribute("d").length > 1000`)
	s.until("the picture", `document.querySelector(".shown > img").naturalWidth === 1`)
	s.pictures("shown")
	s.accessible("what an agent shows")
	has("show", `{}`, "nothing is shown")
	s.until("nothing is shown", `!document.querySelector(".shown")`)
	for _, refused := range []string{
		`{"picture":"https://example.com/x.png"}`, `{"picture":"data:image/svg+xml;base64,AAAA"}`, `{"latitude":3}`,
	} {
		if r := s.agent("show", refused); r.Success {
			s.Errorf("shown: %s", refused)
		}
	}
}

const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// recordings: pictures, clips and sounds are parts, and the person sees that they are taken.
func (s *phoneStage) recordings() {
	both := s.works("camera_snap", `{"facing":"both"}`)
	if len(both.Parts) != 2 || both.Parts[0].Name != "front.jpg" || both.Parts[1].Name != "back.jpg" {
		s.Errorf("both cameras: %d parts", len(both.Parts))
	}
	for _, part := range both.Parts {
		picture, kind, err := image.Decode(bytes.NewReader(part.Data))
		if err != nil || kind != "jpeg" || picture.Bounds().Dx() < 100 || uniform(picture) {
			s.Errorf("the picture: %s %v (%v)", kind, picture, err)
		}
	}
	s.until("the person sees the picture", `document.querySelector(".log img")?.naturalWidth > 100`)
	clip := s.later("camera_clip", `{"duration_ms":2500}`)
	s.see("Records video")
	s.until("progress", `document.querySelector("progress")?.value > 0`)
	s.pictures("running")
	audio := s.later("audio_clip", `{"duration_ms":1000}`)
	for what, get := range map[string]func() toolReply{"video": clip, "audio": audio} {
		r := get()
		if !r.Success || len(r.Parts) != 1 || r.Parts[0].Size < 500 || !strings.HasPrefix(r.Parts[0].MIME, what+"/") {
			s.Errorf("%s: %s %+.300v", what, r.Error, r.Parts)
		}
	}
	screen := s.later("screen_record", `{"duration_ms":3000}`)
	s.see("An agent wants to record your screen")
	s.tap("Choose…")
	if r := screen(); !r.Success || len(r.Parts) != 1 || !strings.HasPrefix(r.Parts[0].Name, "screen.") {
		s.Errorf("the screen: %s %+.300v", r.Error, r.Parts)
	}
	s.until("nothing runs", `document.querySelectorAll(".now li").length === 0`)
}

// uniform reports whether a picture has only one colour.
func uniform(picture image.Image) bool {
	first, bounds := picture.At(0, 0), picture.Bounds()
	for y := 0; y < bounds.Dy(); y += 8 {
		for x := 0; x < bounds.Dx(); x += 8 {
			if picture.At(x, y) != first {
				return false
			}
		}
	}
	return true
}

// questions: the person answers with a tap or with words, or not at all.
func (s *phoneStage) questions() {
	choices := s.later("ask_person", `{"question":"Which door shall I open for the parcel service?",`+
		`"choices":["Front door","Garage","None of them"]}`)
	text := s.later("ask_person", `{"question":"What shall I tell them?","choices":["Nothing"],"text":true,"placeholder":"A sentence"}`)
	s.see("Which door", "Garage", "What shall I tell them?", " left")
	s.docPicture("device-question")
	s.pictures("questions")
	s.accessible("questions")
	s.tap("Garage")
	if r := choices(); !strings.Contains(r.Output, `"answer":"Garage"`) || !strings.Contains(r.Output, `"choice":1`) {
		s.Errorf("answered: %+v", r)
	}
	s.unasked("Which door")
	s.fill("Your answer", "Ring twice")
	s.tap("Send")
	if r := text(); r.Output != `{"answer":"Ring twice"}` {
		s.Errorf("answered: %+v", r)
	}
	refused := s.later("ask_person", `{"question":"Really?"}`)
	s.tap("Not now")
	if r := refused(); r.Success || !strings.Contains(r.Error, "dismissed") {
		s.Errorf("dismissed: %+v", r)
	}
	call := s.later("ask_person", `{"question":"Cancelled?"}`)
	s.see("Cancelled?")
	id := eval[string](s.pageBrowser, `document.querySelector(".prompt").dataset.call`)
	eventually(s, waitLimit, "the call has a record, and is cancelled", func() bool {
		status, _ := request(s, http.MethodDelete, s.balancer+"/api/calls/"+id, "")
		return status == http.StatusOK
	})
	s.unasked("Cancelled?")
	if r := call(); r.Success {
		s.Errorf("cancelled: %+v", r)
	}
}

// taps: what browsers allow only while a finger taps.
func (s *phoneStage) taps() {
	for _, c := range []struct{ tool, args, sees, press, used, output string }{
		{"open_url", `{"url":"https://example.com/page?x=1","reason":"The timetable"}`, "https://example.com/page?x=1",
			"Open",
			"open https://example.com/page?x=1 noopener,noreferrer", "opened"},
		{"share", `{"title":"Photo","url":"https://example.com/photo"}`, "https://example.com/photo", "Share…",
			"share https://example.com/photo", "shared"},
	} {
		get := s.later(c.tool, c.args)
		s.see(c.sees)
		s.tap(c.press)
		s.used(c.used)
		if r := get(); r.Output != c.output {
			s.Errorf("%s: %+v", c.tool, r)
		}
	}
	for _, url := range []string{"javascript:alert(1)", "file:///etc/passwd", "data:text/html,x",
		"https://a:b@example.com/"} {
		if r := s.agent("open_url", `{"url":"`+url+`"}`); r.Success {
			s.Errorf("opened: %s", url)
		}
	}
	// The person has not been asked for notifications yet.
	get := s.later("notify", `{"title":"Parcel","body":"It has arrived."}`)
	s.see("It has arrived.", "An agent wants to notify you")
	s.permit("notifications", "granted")
	s.tap("Allow notifications")
	if r := get(); r.Output != "shown" {
		s.Errorf("notified: %+v", r)
	}
	s.works("notify", `{"body":"Without a question now."}`)
	s.until("both notifications", `navigator.serviceWorker.getRegistration("/device").then(r => r.getNotifications())
		.then(all => all.map(n => n.title + ": " + n.body).join() === "Parcel: It has arrived.,Farhand: Without a question now.")`)
}

// nodes: the gateway's own tools drive the page unchanged.
func (s *phoneStage) nodes() {
	for _, c := range []struct{ tool, args, want string }{
		{"nodes", `{"action":"status"}`, "Anna's phone"},
		{"nodes", `{"action":"describe"}`, "camera_snap"},
		{"nodes", `{"action":"notify","title":"T","body":"from a node tool"}`, "shown"},
		{"nodes", `{"action":"camera_list"}`, "fake_device_0"},
		{"nodes", `{"action":"camera_snap","facing":"front"}`, "picture"},
		{"nodes", `{"action":"camera_clip","duration":"1s"}`, "clip"},
		{"nodes", `{"action":"location_get"}`, "48.2083"},
		{"node-invoke", `{"device":` + quoted(s.deviceID()) + `,"command":"battery"}`, "level"},
		{"canvas", `{"action":"present"}`, "done"},
		{"canvas", `{"action":"eval","javaScript":"document.body.textContent = 'by the canvas tool'; 6 * 7"}`, "42"},
		{"canvas", `{"action":"a2ui_push","jsonl":"{\"text\":\"plain object\"}"}`, "done"},
		{"canvas", `{"action":"snapshot","quality":50}`, "A picture of the canvas"},
		{"canvas", `{"action":"a2ui_reset"}`, "done"},
		{"canvas", `{"action":"hide"}`, "done"},
	} {
		r := s.works(c.tool, c.args)
		if !strings.Contains(r.Output, c.want) {
			s.Errorf("%s %s: %.300s", c.tool, c.args, r.Output)
		}
		if picture := strings.Contains(c.args, "snap"); picture && len(r.Parts) != 1 {
			s.Errorf("%s: %d parts", c.args, len(r.Parts))
		}
	}
}

func (s *phoneStage) deviceID() string {
	return eval[string](s.pageBrowser, `JSON.parse(localStorage.getItem("farhand device id"))`)
}

// canvas: agents draw, take pictures and present pages of other sites.
func (s *phoneStage) canvas() {
	s.works("canvas_present", `{}`)
	s.see("Canvas", "It is locked in")
	for code, want := range map[string]string{
		"1 + 1": "2", "document.title": "Canvas", "new Promise(ok => setTimeout(ok, 1, {a: [1]}))": `{"a":[1]}`,
		"undefined": "undefined", "document.body.style.background = 'rgb(200, 30, 40)'": "rgb(200, 30, 40)",
	} {
		if r := s.works("canvas_eval", `{"javaScript":`+quoted(code)+`}`); r.Output != want {
			s.Errorf("%s: %s", code, r.Output)
		}
	}
	if r := s.agent("canvas_eval", `{"javaScript":"missing()"}`); r.Success ||
		!strings.Contains(r.Error, "missing is not defined") {
		s.Errorf("missing(): %+v", r)
	}
	r := s.works("canvas_snapshot", `{"quality":90}`)
	if len(r.Parts) != 1 {
		s.Fatalf("the picture of the canvas: %+v", r)
	}
	picture, _, err := image.Decode(bytes.NewReader(r.Parts[0].Data))
	if err != nil {
		s.Fatal(err)
	}
	if red, green, blue, _ := picture.At(picture.Bounds().Dx()/2, picture.Bounds().Dy()/2).RGBA(); red>>8 < 180 ||
		green>>8 > 60 || blue>>8 > 70 {
		s.Errorf("the picture shows %d %d %d", red>>8, green>>8, blue>>8)
	}
	for _, url := range []string{"file:///etc/passwd", "http://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/",
		"javascript:1"} {
		if r := s.agent("canvas_navigate", `{"url":"`+url+`"}`); r.Success {
			s.Errorf("presented: %s", url)
		}
	}
	s.works("canvas_navigate", `{"url":"https://site.invalid/"}`)
	if r := s.agent("canvas_eval", `{"javaScript":"1"}`); r.Success || !strings.Contains(r.Error, "another site") {
		s.Errorf("code for a page of another site: %+v", r)
	}
	s.works("canvas_a2ui_reset", `{}`)
	if r := s.works("canvas_eval", `{"javaScript":"document.body.style.background"}`); r.Output != "" {
		s.Errorf("after the reset: %s", r.Output)
	}
}

// a2ui: content in the A2UI format is drawn, and the person's tap reaches the agent.
func (s *phoneStage) a2ui() {
	lines := []string{
		`{"version":"v0.9","createSurface":{"surfaceId":"main","catalogId":` +
			`"https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"}}`,
		`{"version":"v0.9","updateComponents":{"surfaceId":"main","components":[` +
			`{"id":"root","component":"Column","children":["title","go"]},` +
			`{"id":"title","component":"Text","text":"Choose a seat","variant":"h2"},` +
			`{"id":"label","component":"Text","text":"Window"},` +
			`{"id":"go","component":"Button","child":"label","action":{"event":{"name":"seat","context":{"kind":"window"}}}}]}}`,
	}
	s.works("canvas_a2ui_push", `{"jsonl":`+quoted(strings.Join(lines, "\n"))+`}`)
	deep := `(() => { const all = root => [...root.querySelectorAll("*")].flatMap(e => [e, ...(e.shadowRoot ? all(e.shadowRoot) : [])]);
		const found = all(document).find(e => e.tagName === "BUTTON"); if (%s) found.click(); return found?.innerText ?? "" })()`
	eventually(s, waitLimit, "the button is drawn", func() bool {
		return s.works("canvas_eval", `{"javaScript":`+quoted(fmt.Sprintf(deep, "false"))+`}`).Success
	})
	s.pictures("a2ui")
	s.works("canvas_eval", `{"javaScript":`+quoted(fmt.Sprintf(deep, "true"))+`}`)
	s.see("You tapped “seat” on the canvas")
	r := s.works("canvas_snapshot", `{}`)
	if !strings.Contains(r.Output, `"name":"seat"`) || !strings.Contains(r.Output, `"kind":"window"`) ||
		len(r.Parts) != 1 {
		s.Errorf("the tap: %+.300v", r.Output)
	}
	for wrong, why := range map[string]string{
		`[]`: "line 1 is not a JSON object", `no json`: "line 1 is not a JSON object",
		`{"beginRendering":{"surfaceId":"x","root":"y"}}`:      "this is A2UI 0.8, and the canvas draws 0.9",
		`{"version":"v0.8","deleteSurface":{"surfaceId":"x"}}`: `draws A2UI 0.9, not "v0.8"`,
	} {
		if r := s.agent("canvas_a2ui_push", `{"jsonl":`+quoted(wrong)+`}`); r.Success ||
			!strings.Contains(r.Error, why) {
			s.Errorf("%s: %+v", wrong, r)
		}
	}
	s.works("canvas_a2ui_reset", `{}`)
	s.works("canvas_hide", `{}`)
	s.gone("It is locked in")
}
