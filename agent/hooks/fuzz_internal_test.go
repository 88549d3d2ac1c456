package hooks

import (
	"log/slog"
	"testing"

	"github.com/farhand/farhand/internal/strictjson"
)

// FuzzAnswer: an answer is refused, or it is one of the three decisions with exactly what belongs to it.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"decision":"continue"}`, `{"decision":"modify","args":{"a":1}}`, `{"decision":"cancel","reason":"no"}`,
		`{"decision":"modify","result":{"output":"x","structured":{"a":[1]},"error":"e","success":true}}`, `{}`, `[`,
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, first bool) {
		phase := phaseAfter
		if first {
			phase = phaseBefore
		}
		a, err := parseAnswer(text, phase)
		if err != nil {
			return
		}
		if !strictjson.Valid(text) {
			t.Fatalf("%q is no JSON", text)
		}
		if changes := a.Decision == decisionModify && first; changes != a.Args.IsObject() {
			t.Errorf("%q: %+v", text, a)
		}
		if a.Decision != decisionCancel && a.reason != "" || len(a.reason) > maxReason+len("…") {
			t.Errorf("%q: %+v", text, a)
		}
		if a.Decision != decisionModify && a.Result != nil {
			t.Errorf("%q: %+v", text, a)
		}
	})
}

// FuzzFile: a file is read or refused, and what is read can be used.
func FuzzFile(f *testing.F) {
	f.Add("hooks:\n  - name: a\n    url: https://h.example.com\n    phase: both\n" +
		"    secret: whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
	f.Add("hooks: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		hooks, err := parse([]byte(text), t.TempDir())
		if err != nil {
			return
		}
		for _, c := range hooks {
			h, err := New(c, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			h.Close()
		}
	})
}
