package schema

import (
	"strings"
	"testing"
)

// What apps send that were written for gateways which do not look into schemas.
func TestModernize(t *testing.T) {
	const draft04 = `"$schema":"http://json-schema.org/draft-04/schema#"`
	for name, tt := range map[string]struct{ old, modern, valid, invalid string }{
		"required at a property": {
			`{"type":"object","properties":{"to":{"type":"string","required":true},"cc":{"type":"string",` +
				`"required":false}}}`,
			`{"type":"object","properties":{"to":{"type":"string"},"cc":{"type":"string"}},"required":["to"]}`,
			`{"to":"a"}`, `{"cc":"a"}`,
		},
		"required in both spellings": {
			`{"properties":{"a":{"required":true},"b":{"required":true}},"required":["a"]}`,
			`{"properties":{"a":{},"b":{}},"required":["a","b"]}`, `{"a":1,"b":1}`, `{"a":1}`,
		},
		"required, nested": {
			`{"properties":{"p":{"type":"object","required":true,"properties":{"x":{"type":"integer",` +
				`"required":true}}}},"required":true}`,
			`{"properties":{"p":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}},` +
				`"required":["p"]}`,
			`{"p":{"x":1}}`, `{"p":{}}`,
		},
		"required of items": {
			`{"properties":{"l":{"type":"array","items":{"type":"string","required":true}}}}`,
			`{"properties":{"l":{"type":"array","items":{"type":"string"}}}}`, `{"l":["a"]}`, `{"l":[1]}`,
		},
		"a property called required": {
			`{"properties":{"required":{"type":"boolean"}},"required":["required"]}`, "", `{"required":true}`, `{}`,
		},
		"exclusive bounds": {
			`{"properties":{"n":{"minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}}}`,
			`{"properties":{"n":{"exclusiveMinimum":0,"maximum":9}}}`, `{"n":9}`, `{"n":0}`,
		},
		"exclusive without a bound": {`{"properties":{"n":{"exclusiveMinimum":true}}}`, `{"properties":{"n":{}}}`,
			`{"n":0}`, ``},
		"draft-04": {`{` + draft04 + `,"type":"object"}`, `{"type":"object"}`, `{}`, `1`},
		"draft-04, ids": {
			`{"id":"http://example.com/tool",` + draft04 +
				`,"definitions":{"n":{"id":"#n","type":"number"},"s":{"type":"string"}},` +
				`"properties":{"a":{"$ref":"#n"},"b":{"$ref":"http://example.com/tool#/definitions/s"}}}`,
			`{"$id":"http://example.com/tool","definitions":{"n":{"$anchor":"n","type":"number"},` +
				`"s":{"type":"string"}},` +
				`"properties":{"a":{"$ref":"#n"},"b":{"$ref":"http://example.com/tool#/definitions/s"}}}`,
			`{"a":1,"b":""}`, `{"a":"","b":""}`,
		},
		"draft-04, beside a reference": {
			`{` + draft04 + `,"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s",` +
				`"description":"d","minLength":5}}}`,
			`{"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s","description":"d"}}}`,
			`{"a":"x"}`, `{"a":1}`,
		},
		"definitions": {`{"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s"}}}`, "",
			`{"a":""}`, `{"a":1}`},
		"tuple": {
			`{"properties":{"p":{"type":"array","items":[{"type":"number"},{"type":"number"}],` +
				`"additionalItems":false}}}`,
			`{"properties":{"p":{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}],"items":false}}}`,
			`{"p":[1,2]}`, `{"p":[1,2,3]}`,
		},
		"tuple of draft-07": {
			`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"p":{"items":[{"type":"number"}]}}}`,
			"", `{"p":[1]}`, `{"p":[""]}`,
		},
		"types": {
			`{"type":"OBJECT","properties":{"a":{"type":"Int"},"b":{"type":["STRING","null"]},"c":{"type":"any"},` +
				`"d":{"type":"bool"},"e":{"type":"List"}}}`,
			`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["string","null"]},"c":{},` +
				`"d":{"type":"boolean"},"e":{"type":"array"}}}`,
			`{"a":1,"b":null,"c":{},"d":true,"e":[]}`, `{"a":"x"}`,
		},
		"a property called type": {`{"properties":{"type":{"type":"string"}}}`, "", `{"type":"int"}`, `{"type":1}`},
		"null keywords": {
			`{"type":"object","description":null,"required":null,"properties":{"a":{"type":"string","enum":null,` +
				`"default":null}}}`,
			`{"type":"object","properties":{"a":{"type":"string","default":null}}}`, `{}`, `{"a":1}`,
		},
		"null as a value": {`{"properties":{"a":{"const":null},"b":{"enum":[null,"x"]}}}`, "", `{"a":null,"b":null}`,
			`{"a":1}`},
		"divisibleBy": {`{"properties":{"n":{"divisibleBy":2}}}`, `{"properties":{"n":{"multipleOf":2}}}`,
			`{"n":4}`, `{"n":3}`},
		"text as it was": {
			`{"description":"<ä&\u2028\"","properties":{"z":{"default":1.50},"a":{"required":true}}}`,
			`{"description":"<ä&\u2028\"","properties":{"z":{"default":1.50},"a":{}},"required":["a"]}`, `{"a":1}`,
			`{}`,
		},
		"nothing to do": {`{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number"}},` +
			`"required":["a"]}`, "", `{"a":1}`, `{}`},
	} {
		want := tt.modern
		if want == "" {
			want = tt.old
		}
		got := Modernize([]byte(tt.old))
		if string(got) != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
			continue
		}
		if again := Modernize(got); string(again) != want {
			t.Errorf("%s: changed again: %s", name, again)
		}
		s, err := Compile(got)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, v := range []struct {
			text string
			ok   bool
		}{{tt.valid, true}, {tt.invalid, false}} {
			if v.text == "" {
				continue
			}
			if found, err := s.Validate(t.Context(), decoded(t, v.text), Work{}); err != nil ||
				(len(found) == 0) != v.ok {
				t.Errorf("%s: %s: %+v, %v", name, v.text, found, err)
			}
		}
	}
}

// What says nothing clearly stays as it is, for the compiler to refuse.
func TestModernizeGuessesNothing(t *testing.T) {
	for _, text := range []string{
		`{"required":"a"}`, `{"type":"strin"}`, `{"type":7}`, `{"properties":[]}`, `{"properties":{"a":null}}`,
		`not JSON`, `[]`, ``, `{} {}`, `{"minimum":"5"}`,
		`{"required":"a","properties":{"b":1}}`,
	} {
		if got := Modernize([]byte(text)); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func FuzzModernize(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"required":true}},"items":[{}],"id":"#x",` +
		`"$schema":"http://json-schema.org/draft-04/schema#"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 || strings.Count(text, "[")+strings.Count(text, "{") > 64 {
			return
		}
		once := Modernize([]byte(text))
		if twice := Modernize(once); string(twice) != string(once) {
			t.Errorf("%s became %s, and then %s", text, once, twice)
		}
	})
}
