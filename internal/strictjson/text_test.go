package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
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

// Every byte is told from the others wherever it stands among the eight that are looked at together.
func TestAppendJSONStringAtEveryPlace(t *testing.T) {
	for c := range 256 {
		for place := range 20 {
			text := []byte("abcdefghijklmnopqrst")
			text[place] = byte(c)
			if got, want := string(AppendString(nil, string(text))), plainJSON(t, string(text)); got != want {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	}
}

func BenchmarkAppendJSONString(b *testing.B) {
	for name, s := range map[string]string{
		"word": "delivered", "id": "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11",
		"text": strings.Repeat("The battery is at 83 %.\n", 400),
	} {
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 2*len(s)+2)
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				_ = AppendString(buf, s)
			}
		})
	}
}

func FuzzAppendJSONString(f *testing.F) {
	for _, s := range []string{
		"", "plain", `quo"te\`, "\x00\x1f\b\f\n\r\t\x7f", "<&>", "é\u2028\u2029\ufffd𝄞", "\xff\xc3(", "end\xe2\x80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := string(AppendString([]byte("x"), s)), "x"+plainJSON(t, s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	})
}

func TestAppendScalar(t *testing.T) {
	for want, v := range map[string]any{`"a\n"`: "a\n", "1.0e2": json.Number("1.0e2"), "true": true, "false": false,
		"null": nil} {
		if got := string(AppendScalar(nil, v)); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
