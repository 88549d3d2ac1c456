package api

import (
	"encoding/json"
	"testing"

	"github.com/farhand/farhand/api/internal/jsonbody"
)

// FuzzMembers: of every text that is let in, the fields are those encoding/json finds, byte for byte.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"args":{"x":[1,{"y":"}]\""}]},"mode":"sync"}`, "{\n\"a\" : [ ] ,\t\"b\":null}", `{"a":-1.5e3,"b":true}`,
		`{"é\"\\":"","":{}}`, `{"a":"\\"}`, `[]`, `null`, `"{"`, `7 `, `{"a":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if jsonbody.Check(text) != nil {
			return
		}
		var want map[string]json.RawMessage
		isObject := json.Unmarshal(text, &want) == nil && want != nil
		got := members(text)
		if (got != nil) != isObject || len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", text, got, want)
		}
		for name, value := range want {
			if found, ok := got.get(name); !ok || string(found) != string(value) {
				t.Errorf("%q: field %q is %q, want %q", text, name, found, value)
			}
		}
	})
}
