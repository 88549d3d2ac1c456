package ws_test

import (
	"encoding/json"
	"testing"
)

// Tools whose schemas are spelled as draft-03, draft-04 or other gateways have it are accepted, and listed in today's
// spelling.
func TestOldSpellingsOfSchemasAreAccepted(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("clawseed")
	d.send(`{"type":"register_tools","tools":[
		{"name":"required","parameters":{"type":"object","properties":{"to":{"type":"string","required":true}}}},
		{"name":"bounds","parameters":{"type":"object",
			"properties":{"n":{"type":"number","minimum":0,"exclusiveMinimum":true}}}},
		{"name":"draft04","parameters":{"$schema":"http://json-schema.org/draft-04/schema#",
			"id":"http://example.com/t","type":"object",
			"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s"}}}},
		{"name":"tuple","parameters":{"type":"object","properties":{"p":{"type":"array","items":[{"type":"number"}]}}}},
		{"name":"types","parameters":{"type":"OBJECT","properties":{"a":{"type":"any"},"b":{"type":"int"}}}},
		{"name":"nulls","parameters":{"type":"object","description":null,
			"properties":{"a":{"type":"string","enum":null}}}}]}`)
	if got := d.expect("tools_registered"); got["registered"] != 6.0 || got["rejected"] != nil {
		t.Fatalf("%v", got)
	}
	d.send(`{"type":"get_registered_tools"}`)
	listed := make(map[string]string)
	for _, tool := range d.expect("registered_tools")["tools"].([]any) {
		tool := tool.(map[string]any)
		text, err := json.Marshal(tool["parameters"])
		must(t, err)
		listed[tool["name"].(string)] = string(text)
	}
	for name, want := range map[string]string{
		"required": `{"properties":{"to":{"type":"string"}},"required":["to"],"type":"object"}`,
		"bounds":   `{"properties":{"n":{"exclusiveMinimum":0,"type":"number"}},"type":"object"}`,
		"tuple":    `{"properties":{"p":{"prefixItems":[{"type":"number"}],"type":"array"}},"type":"object"}`,
		"types":    `{"properties":{"a":{},"b":{"type":"integer"}},"type":"object"}`,
	} {
		if listed[name] != want {
			t.Errorf("%s is listed as %s, want %s", name, listed[name], want)
		}
	}
}
