package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// validityCases are texts at the edges of what JSON is.
var validityCases = []string{
	"", " ", "{}", "[]", " [ ] ", "{ }", `{"a":1}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a"}`, `{"a":}`, `{1:2}`, `{"a" : [ 1 , {"b":null} ] }`,
	"true", "false", "null", "tru", "truex", "nul", "True", "0", "-0", "-", "00", "01", "1.", ".1", "1.0", "-1.5e+10", "1e", "1E-", "1e5", "+1", "0x1", "NaN",
	`""`, `"`, `"a`, `"\"`, `"\\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\uD800"`, `"é\/"`, "\"\n\"", "\"\x00\"", "\"\x7f\"", "\"\xff\xfe\"", "\"\t\"",
	"{}{}", "[]]", "[}", "{]", "1 1", "\v1", "\x00", "1\x00", "\ufeff{}",
	strings.Repeat("[", plainNesting) + strings.Repeat("]", plainNesting),
	strings.Repeat("[", plainNesting+1) + strings.Repeat("]", plainNesting+1),
	strings.Repeat("[", plainNesting+1),
	strings.Repeat(`{"a":`, plainNesting-1) + "1" + strings.Repeat("}", plainNesting-1),
	strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
}

func TestValidJSON(t *testing.T) {
	for _, text := range validityCases {
		if got, want := Valid([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("%.60q: %v, encoding/json says %v", text, got, want)
		}
	}
}

func FuzzValidJSON(f *testing.F) {
	for _, text := range validityCases {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := Valid(text), json.Valid(text); got != want {
			t.Errorf("%q: %v, encoding/json says %v", text, got, want)
		}
	})
}

func BenchmarkValidJSON(b *testing.B) {
	text := []byte(`{"text":"` + strings.Repeat("x", 80) + `","n":[1,2.5,-3e8],"ok":true,"of":{"a":null}}`)
	for name, valid := range map[string]func([]byte) bool{"ours": Valid, "encoding/json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !valid(text) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
