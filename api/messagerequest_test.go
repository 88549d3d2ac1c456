package api

import (
	"testing"

	"github.com/farhand/farhand/registry"
)

// FuzzMessageBody: nothing panics, every refusal is a coded error, and what is accepted says exactly one thing.
func FuzzMessageBody(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"content":"hi"}`, `{"regenerate":true}`,
		`{"content":"a","stream":false,"debug":true,"results":"plain"}`, `{"content":"\ud800"}`, "null"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseMessage(body)
		if err != nil {
			if code := registry.AsError(err).Code; code != registry.CodeInvalidRequest {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if (r.said.Content == "") != r.said.Regenerate {
			t.Fatalf("accepted %+v", r)
		}
	})
}
