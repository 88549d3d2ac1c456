package jsonbody

import (
	"encoding/json"
	"testing"
)

// FuzzMembers: of every text that is let in, the fields are those encoding/json finds, byte for byte.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"args":{"x":[1,{"y":"}]\""}]},"mode":"sync"}`, "{\n\"a\" : [ ] ,\t\"b\":null}",
		`{"a":-1.5e3,"b":true}`,
		`{"é\"\\":"","":{}}`, `{"a":"\\"}`, `[]`, `null`, `"{"`, `7 `, `{"a":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if Check(text) != nil {
			return
		}
		var want map[string]json.RawMessage
		isObject := json.Unmarshal(text, &want) == nil && want != nil
		got, err := Members(text)
		if (err == nil) != isObject || len(got) != len(want) {
			t.Fatalf("%q: %q, %v, want %q", text, got, err, want)
		}
		for _, m := range got {
			if value, ok := want[string(m.Name)]; !ok || string(m.Value) != string(value) {
				t.Errorf("%q: field %q is %q, want %q", text, m.Name, m.Value, value)
			}
		}
	})
}
