package registry

import (
	"bytes"
	"encoding/json"
	"testing"
)

// plainJSON is what encoding/json makes of s without escaping for HTML.
func plainJSON(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func FuzzAppendJSONString(f *testing.F) {
	for _, s := range []string{
		"", "plain", `quo"te\`, "\x00\x1f\b\f\n\r\t\x7f", "<&>", "é\u2028\u2029\ufffd𝄞", "\xff\xc3(", "end\xe2\x80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := string(AppendJSONString([]byte("x"), s)), "x"+plainJSON(t, s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	})
}
