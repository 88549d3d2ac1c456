package mcp

import (
	"testing"

	"github.com/farhand/farhand/internal/strictjson"
)

// Whatever a client says its user has answered is read as a decision, as none, or refused; only the two words decide.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"action":"accept","content":{"decision":"allow"}}`, `{"action":"accept","content":{"decision":"deny"}}`,
		`{"action":"accept"}`, `{"action":"decline"}`, `{"action":"cancel","content":7}`, `{"action":"allow"}`, `{}`,
		`{"action":"accept","content":{"decision":["allow"]}}`, `{"action":"accept","content":{"Decision":"allow"}}`,
		`{"action":"decline","content":{"decision":"allow"}}`, `7`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := strictjson.Parse([]byte(text))
		if err != nil {
			return
		}
		d, wrong := readAnswer(v)
		if wrong != "" && d.Allow {
			t.Errorf("%s is refused, and is a decision", text)
		}
		if !d.Allow {
			return
		}
		said, err := membersOf(v)
		if err != nil {
			t.Fatalf("%s allows: %v", text, err)
		}
		action, _ := fields(said).text("action")
		content, err := membersOf(fields(said).get("content"))
		word, _ := fields(content).text("decision")
		if err != nil || action != "accept" || word != "allow" || wrong != "" {
			t.Errorf("%s allows", text)
		}
	})
}
