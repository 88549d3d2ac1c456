package textsafe

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/strictjson"
)

// Strings of JSON are cleaned wherever they stand and however they are written; all else stays as it is.
func TestCleanJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [1.50, -0e7, true, null, "plain"]}`: `{"a": [1.50, -0e7, true, null, "plain"]}`,
		`"a\u001b[31mb\u0000c"`:                    `"abc"`,
		"\"\u202ea\u200bb\U000E0041\"":             `"ab"`,
		`{"a\u200bb":"c\u202ed","\"":"\\"}`:        `{"ab":"cd","\"":"\\"}`,
		`{"a\nb":"c\nd"}`:                          `{"a\nb":"c\nd"}`,
		`["\u00e4\t\/", 1e400]`:                    `["\u00e4\t\/", 1e400]`,
		`["größe" , "\ud83d\ude00"]`:               `["größe" , "\ud83d\ude00"]`,
		`"\\\u001b"`:                               `"\\"`,
	} {
		if got, ok := CleanJSON([]byte(text)); string(got) != want || !ok {
			t.Errorf("%s became %s, %t; want %s", text, got, ok, want)
		}
	}
	if got, ok := CleanJSON([]byte(`{"a":1,"a\u200b":2}`)); ok {
		t.Errorf("two names became one: %s", got)
	}
	if _, ok := CleanJSON([]byte(`{"a":{"b\u200b":1},"b":2}`)); !ok {
		t.Error("names of two objects were taken for those of one")
	}
}

// FuzzCleanJSON: JSON stays JSON of the same form, with clean strings, and cleaning twice is cleaning once.
func FuzzCleanJSON(f *testing.F) {
	f.Add(`{"a\u200b":["\u001b[2J","\\\"",1.0,{}]}`)
	f.Add("\"\u202e\"")
	f.Fuzz(func(t *testing.T, text string) {
		if !strictjson.Valid([]byte(text)) {
			return
		}
		once, ok := CleanJSON([]byte(text))
		if !ok {
			return
		}
		twice, ok := CleanJSON(once)
		if !strictjson.Valid(once) || !ok || string(twice) != string(once) {
			t.Fatalf("%q became %q, and then %q", text, once, twice)
		}
		var was, is any
		if json.Unmarshal([]byte(text), &was) != nil || json.Unmarshal(once, &is) != nil {
			return // numbers that Go does not hold
		}
		if !reflect.DeepEqual(cleaned(was), is) {
			t.Errorf("%q became %q", text, once)
		}
	})
}

// cleaned cleans decoded JSON.
func cleaned(v any) any {
	switch v := v.(type) {
	case string:
		return Clean(strings.ToValidUTF8(v, "\ufffd"))
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		names := make(map[string]any, len(v))
		for name, value := range v {
			names[Clean(name)] = cleaned(value)
		}
		return names
	}
	return v
}
