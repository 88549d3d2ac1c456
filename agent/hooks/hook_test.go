package hooks_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/registry"
)

// What is asked, to the field; that it is signed is checked by the service of every test.
func TestQuestions(t *testing.T) {
	s := serve(t, say(`{"decision":"continue"}`))
	h, _ := open(t, s.URL, nil)
	if d, err := before(t.Context(), h); err != nil || !reflect.DeepEqual(d, agent.Pass()) {
		t.Fatalf("%+v, %v", d, err)
	}
	text := registry.Result{Success: true, Output: "<b>"}
	object := registry.NewResult(true, registry.MustJSON(`{"a":1}`), "")
	failed := registry.NewResult(false, registry.JSON{}, "no film")
	for _, r := range []registry.Result{text, object, failed} {
		if got, err := after(t, h, r); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	}
	common := `"hook":"guard","call_id":"c1","tool":"camera_take","source":"remote:s1","session_id":"s1",` +
		`"device_id":"phone","turn_id":"t1"`
	for i, want := range []struct{ id, body string }{
		{"c1.before", `{"type":"tool.call.before",` + common + `,"caller":{"tenant":"acme","user":"ada",
			"roles":["caller"]},"args":{"n":"<1>"}}`},
		{"c1.after", `{"type":"tool.call.after",` + common + `,"caller":{"tenant":"acme","user":"ada"},
			"result":{"success":true,"output":"<b>"}}`},
		{"c1.after", `{"type":"tool.call.after",` + common + `,"caller":{"tenant":"acme","user":"ada"},
			"result":{"success":true,"structured":{"a":1}}}`},
		{"c1.after", `{"type":"tool.call.after",` + common + `,"caller":{"tenant":"acme","user":"ada"},
			"result":{"success":false,"output":"no film","error":"no film"}}`},
	} {
		q := s.questions()[i]
		var got, expected map[string]any
		if err := errors.Join(json.Unmarshal([]byte(q.body), &got),
			json.Unmarshal([]byte(want.body), &expected)); err != nil {
			t.Fatal(err)
		}
		if ms, ok := got["deadline_ms"].(float64); !ok || ms < 1 || ms > 10_000 || got["timestamp"] == nil {
			t.Errorf("deadline %v, timestamp %v", got["deadline_ms"], got["timestamp"])
		}
		delete(got, "deadline_ms")
		delete(got, "timestamp")
		if q.id != want.id || !reflect.DeepEqual(got, expected) {
			t.Errorf("asked %s %v\nwant  %s %v", q.id, got, want.id, expected)
		}
		if strings.Contains(q.body, "proof") || strings.Contains(q.body, `\u003c`) {
			t.Errorf("the question has the device's proofs, or is escaped: %s", q.body)
		}
	}
}

func TestBeforeDecisions(t *testing.T) {
	for text, want := range map[string]agent.Decision{
		`{"decision":"continue"}`:                           agent.Pass(),
		`{"decision":"modify","args":{"n":2}}`:              agent.Modify(json.RawMessage(`{"n":2}`)),
		`{"reason":"at\u0007 night","decision":"cancel"}`:   agent.Cancel("at night"),
		`{"decision":"cancel"}`:                             agent.Cancel(""),
		` {"decision" : "modify", "args" : {"n":[1,{}]} } `: agent.Modify(json.RawMessage(`{"n":[1,{}]}`)),
	} {
		h, _ := open(t, serve(t, say(text)).URL, nil)
		if got, err := before(t.Context(), h); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestAfterDecisions(t *testing.T) {
	asked := registry.NewResult(true, registry.MustJSON(`{"password":"hunter2"}`), "said hunter2")
	asked.Notice = "of the loop guard"
	picture := registry.Part{Type: registry.PartImage, MIMEType: "image/png", Data: []byte("a"), Size: 1}
	picture.Name = "4111 1111.png"
	clip := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", URL: "https://x", Size: 1 << 30}
	asked.Parts = []registry.Part{picture, clip}
	unnamed, renamed, untyped, other := picture, picture, picture, clip
	unnamed.Name, renamed.Name = "", "[card].png"
	untyped.Name, untyped.Type, untyped.MIMEType = "", registry.PartFile, "application/octet-stream"
	other.URL, other.MIMEType = "", "x/y" // the link serves it as video/mp4
	for text, want := range map[string]registry.Result{
		`{"decision":"continue"}`: asked,
		`{"decision":"modify","result":{"structured":{"password":"***"}}}`: {
			Success: true, Output: `{"password":"***"}`, Structured: registry.MustJSON(`{"password":"***"}`),
			Notice: asked.Notice,
		},
		`{"decision":"modify","result":{"output":"gone","success":false,"error":"***"}}`: {
			Success: true, Output: "gone", Error: "***", Notice: asked.Notice,
		},
		`{"decision":"modify","result":{}}`: {Success: true, Notice: asked.Notice},
		`{"decision":"modify","result":{"parts":[{"index":1,"type":"file","mime_type":"x/y","size":7},{"index":0}]}}`: {
			Success: true, Notice: asked.Notice, Parts: []registry.Part{other, picture},
		},
		// What is redacted of a part is redacted.
		`{"decision":"modify","result":{"parts":[{"index":0,"type":"image","mime_type":"image/png","size":1}]}}`: {
			Success: true, Notice: asked.Notice, Parts: []registry.Part{unnamed},
		},
		`{"decision":"modify","result":{"parts":[{"index":0,"name":"[card].png"}]}}`: {
			Success: true, Notice: asked.Notice, Parts: []registry.Part{renamed},
		},
		`{"decision":"modify","result":{"parts":[{"index":0,"mime_type":"application/octet-stream"}]}}`: {
			Success: true, Notice: asked.Notice, Parts: []registry.Part{untyped},
		},
		`{"decision":"modify","result":{"parts":[{"index":1,"type":"file","mime_type":"video/mp4"}]}}`: {
			Success: true, Notice: asked.Notice, Parts: []registry.Part{clip},
		},
		`{"decision":"modify","result":{"output":"x","parts":[{"index":1},{"index":5}]}}`: {
			Success: true, Output: "x", Notice: asked.Notice, Parts: []registry.Part{clip},
		},
	} {
		h, _ := open(t, serve(t, say(text)).URL, nil)
		if got, err := after(t, h, asked); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, %v\nwant %+v", text, got, err, want)
		}
	}
	h, _ := open(t, serve(t, say(`{"decision":"cancel","reason":"private"}`)).URL, nil)
	got, err := after(t, h, asked)
	if !errors.Is(err, registry.CodeHookCancelled) || !strings.Contains(err.Error(), "private") ||
		!reflect.DeepEqual(got, registry.Result{}) {
		t.Errorf("withheld: %+v, %v", got, err)
	}
}

// A part that cannot be what the answer says of it is not passed on as it was: the result is withheld.
func TestPartsThatCannotBe(t *testing.T) {
	asked := registry.Result{Success: true, Parts: []registry.Part{
		{Type: registry.PartImage, MIMEType: "image/png", Name: canary, Data: []byte("a"), Size: 1},
	}}
	for _, part := range []string{
		`{"index":0,"mime_type":"image/[card]"}`, `{"index":0,"mime_type":"text/plain","type":"image"}`,
		`{"index":0,"type":"photo"}`, `{"index":0,"name":1}`, `{"index":0,"name":"a\u202eb"}`, `{"name":"x"}`,
		`{"index":0,"name":null}`, `{"index":-1}`, `{"index":0},{"index":0}`,
	} {
		h, log := open(t, serve(t, say(`{"decision":"modify","result":{"parts":[`+part+`]}}`)).URL, nil)
		got, err := after(t, h, asked)
		wantStopped(t, err)
		if !reflect.DeepEqual(got, registry.Result{}) || !strings.Contains(log.String(), "unusable answer") {
			t.Errorf("%s: %+v; logged %q", part, got, log)
		}
	}
}

// Arguments that nest deeper than those of any call may are an answer that cannot be used: the call does not run, or
// runs as it was asked for if the hook lets calls through.
func TestDeepArguments(t *testing.T) {
	deep := func(levels int) string {
		return strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	}
	for levels, fits := range map[int]bool{agent.MaxArgsDepth: true, agent.MaxArgsDepth + 1: false, 120: false} {
		s := serve(t, say(`{"decision":"modify","args":`+deep(levels)+`}`))
		h, _ := open(t, s.URL, nil)
		d, err := before(t.Context(), h)
		switch want := agent.Modify(json.RawMessage(deep(levels))); {
		case !fits:
			wantStopped(t, err)
		case err != nil || !reflect.DeepEqual(d, want):
			t.Errorf("%d levels: %+v, %v", levels, d, err)
		}
		if h, _ = open(t, s.URL, func(c *hooks.Config) { c.FailOpen = true }); !fits {
			if d, err := before(t.Context(), h); err != nil || !reflect.DeepEqual(d, agent.Pass()) {
				t.Errorf("%d levels, and calls are let through: %+v, %v", levels, d, err)
			}
		}
	}
}

// Nothing is asked that is not for the hook: other phases, other tools, calls that failed.
func TestWhatIsNotAsked(t *testing.T) {
	s := serve(t, say(`{"decision":"cancel"}`))
	for name, change := range map[string]func(*hooks.Config){
		"phase": func(c *hooks.Config) { c.Before = false },
		"tool":  func(c *hooks.Config) { c.Tools = []string{"sms_*"} },
	} {
		h, _ := open(t, s.URL, change)
		if d, err := before(t.Context(), h); err != nil || !reflect.DeepEqual(d, agent.Pass()) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	for name, change := range map[string]func(*hooks.Config){
		"phase": func(c *hooks.Config) { c.After = false },
		"tool":  func(c *hooks.Config) { c.Tools = []string{"sms_*"} },
	} {
		h, _ := open(t, s.URL, change)
		if h.Amends("camera_take") {
			t.Errorf("%s: amends", name)
		}
		if r, err := after(t, h, registry.Result{Output: "x"}); err != nil || r.Output != "x" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	h, _ := open(t, s.URL, func(c *hooks.Config) { c.Tools = []string{"sms_*", "camera_?ake"} })
	failed := registry.Errorf(registry.CodeTimeout, "late")
	_, err := h.Amend(t.Context(), invocation(), agent.Outcome{}, failed)
	if err != error(failed) || !h.Amends("camera_take") || h.Amends("camera_tape") {
		t.Errorf("a call without a result: %v", err)
	}
	if n := len(s.questions()); n != 0 {
		t.Errorf("%d questions", n)
	}
}

// A device cannot get around a hook with a name that looks like one the hook is about.
func TestLookAlikesAreAsked(t *testing.T) {
	h, _ := open(t, "http://127.0.0.1:1", func(c *hooks.Config) { c.Tools = []string{"camera_*", "send-mail"} })
	for name, want := range map[string]bool{
		"camera_take": true, "Camera_Take": true, "CAMERA_1": true, "c\u0430mera_take": true, "Send-Mail": true,
		"send-mail": true, "mail": false, "send-mails": false, "torch": false,
	} {
		if h.Amends(name) != want {
			t.Errorf("%s: asked %t", name, !want)
		}
	}
}

// A redirect is an answer that cannot be used, wherever it leads.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, say(`{"decision":"continue"}`))
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) })
		h, _ := open(t, s.URL, nil)
		_, err := before(t.Context(), h)
		wantStopped(t, err)
	}
	if len(other.questions()) != 0 {
		t.Error("a redirect was followed")
	}
}

// wantStopped fails the test if err is not that of a hook that gave no answer.
func wantStopped(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, registry.CodeHookCancelled) || !strings.Contains(err.Error(), "guard") {
		t.Errorf("not stopped: %v", err)
	}
	if err != nil && (strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "http")) {
		t.Errorf("tells where the hook is: %v", err)
	}
}
