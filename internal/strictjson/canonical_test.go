package strictjson

import (
	"encoding/json"
	"testing"
)

func TestDigest(t *testing.T) {
	digest := func(parts ...string) string {
		t.Helper()
		var raw []json.RawMessage
		for _, p := range parts {
			raw = append(raw, json.RawMessage(p))
		}
		d, err := Digest(raw...)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(`{"b":[1, {"d":null,"c":"é"}],"a":1.50}`)
	if got := digest("{\n \"a\": 1.50, \"b\":[1,{\"c\":\"\\u00e9\",\"d\":null}] }"); got != same {
		t.Error("space and the order of keys change the digest")
	}
	for what, other := range map[string]string{
		"another number": digest(`{"b":[1,{"d":null,"c":"é"}],"a":1.51}`),
		"another order":  digest(`{"b":[{"d":null,"c":"é"},1],"a":1.50}`),
		"a missing null": digest(`{"b":[1,{"c":"é"}],"a":1.50}`),
		"another part":   digest(`{"b":[1,{"d":null,"c":"é"}],"a":1.50}`, `{}`),
	} {
		if other == same {
			t.Errorf("%s does not change the digest", what)
		}
	}
	if digest(`1`, `23`) == digest(`12`, `3`) {
		t.Error("the parts run into each other")
	}
	if digest(`12345678901234567890`) == digest(`12345678901234567891`) {
		t.Error("large numbers are rounded")
	}
	if _, err := Digest(json.RawMessage(`{`)); err == nil {
		t.Error("half an object has a digest")
	}
}

func TestCanonicalKeepsNumbers(t *testing.T) {
	got, err := Canonical(json.RawMessage(` { "z" : 12345678901234567890, "a": [1.0, 1e400, -0, 0.1000] } `))
	if want := `{"a":[1.0,1e400,-0,0.1000],"z":12345678901234567890}`; err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}
