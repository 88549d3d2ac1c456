package approval_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/registry"
)

func TestShown(t *testing.T) {
	for args, want := range map[string]struct {
		text    string
		remarks []string
	}{
		`{}`:                         {"{}", nil},
		`{"a":1,"b":["x"]}`:          {"{\n  \"a\": 1,\n  \"b\": [\n    \"x\"\n  ]\n}", nil},
		`{"a":"x\ny"}`:               {"{\n  \"a\": \"x\\ny\"\n}", []string{"multiline"}},
		`{"a":"x\u000ay"}`:           {"{\n  \"a\": \"x\\u000ay\"\n}", []string{"multiline"}},
		"{\"a\":\"p\u0430y\"}":       {"{\n  \"a\": \"p\u0430y\"\n}", []string{"foreign"}},
		"{\"a\":\"x\u202ey\"}":       {"{\n  \"a\": \"x\\u202ey\"\n}", []string{"hidden", "foreign"}},
		`{"a":"x\u200by"}`:           {"{\n  \"a\": \"x\\u200by\"\n}", []string{"hidden", "foreign"}},
		"{\"a\":\"x\U000e0041y\"}":   {"{\n  \"a\": \"x\\udb40\\udc41y\"\n}", []string{"hidden", "foreign"}},
		"{\"a\":\"e\u0301\"}":        {"{\n  \"a\": \"e\\u0301\"\n}", []string{"hidden", "foreign"}},
		"{\"a\":\"x\u2800y\"}":       {"{\n  \"a\": \"x\\u2800y\"\n}", []string{"hidden", "foreign"}},
		`{"a":"x                y"}`: {"{\n  \"a\": \"x                y\"\n}", []string{"hidden"}},
		`{"a":"\\u200b is escaped"}`: {"{\n  \"a\": \"\\\\u200b is escaped\"\n}", nil},
	} {
		text, remarks := approval.Shown(registry.MustJSON(args))
		if text != want.text || !slices.Equal(remarks, want.remarks) {
			t.Errorf("%s is shown as %q with %q, want %q with %q", args, text, remarks, want.text, want.remarks)
		}
	}
	long := registry.MustJSON(`{"a":"` + strings.Repeat("x", 1000) + `"}`)
	if _, remarks := approval.Shown(long); !slices.Equal(remarks, []string{"long"}) {
		t.Errorf("remarks %q", remarks)
	}
}

// FuzzShown: what is shown is what the tool will get, and has no character that is not seen.
func FuzzShown(f *testing.F) {
	for _, seed := range []string{
		`{}`, "{\"a\":\"\u202e\u200b\\u200b\"}", `{"a":"\\\\u0041\n\u000A"}`, `[1e999,"\ud83d\ude00","\u0000"]`,
		"{\"\ufffd\":null}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		parsed, err := registry.ParseJSON(args)
		if err != nil {
			return
		}
		text, _ := approval.Shown(parsed)
		for _, r := range text {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q has %U", text, r)
			}
		}
		if got, want := valueOf(t, []byte(text)), valueOf(t, parsed.Raw()); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is shown of %q", text, args)
		}
	})
}

func valueOf(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}
