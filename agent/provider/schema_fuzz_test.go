package provider

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzObjectSchema wants of every schema one that vendors take, and the same when it is one already.
func FuzzObjectSchema(f *testing.F) {
	for _, seed := range []string{`{}`, `true`, `{"type":"string","anyOf":[1],"description":2}`,
		`{"type":"object","type":1,"":{}}`, "{\"\\ud800\":1,\"enum\":[]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) {
			return
		}
		got := objectSchema(json.RawMessage(schema))
		var members map[string]json.RawMessage
		if err := json.Unmarshal(got, &members); err != nil || string(members["type"]) != `"object"` {
			t.Fatalf("%s became %s: %v", schema, got, err)
		}
		for _, key := range refusedAtTop {
			if _, ok := members[key]; ok {
				t.Errorf("%s became %s", schema, got)
			}
		}
		if again := objectSchema(got); !slices.Equal(again, got) {
			t.Errorf("%s became %s, then %s", schema, got, again)
		}
	})
}
