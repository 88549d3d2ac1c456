package schema_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/registry"
)

// What a tool returned is checked as JSON if it is that, else as a string; a failure is not checked.
func TestOutputsAreChecked(t *testing.T) {
	object := `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	for name, tt := range map[string]struct {
		schema string
		res    registry.Result
		at     string // of the violation; "-": none
	}{
		"valid":      {object, registry.NewResult(true, registry.MustJSON(`{"n":1}`), ""), "-"},
		"wrong type": {object, registry.NewResult(true, registry.MustJSON(`{"n":"1"}`), ""), "/n"},
		"missing":    {object, registry.NewResult(true, registry.MustJSON(`{}`), ""), ""},
		"text":       {object, registry.NewResult(true, registry.MustJSON(`"{\"n\":1}"`), ""), ""},
		"failure":    {object, registry.NewResult(false, registry.MustJSON(`{}`), "no"), "-"},
		"text wanted": {`{"type":"string","maxLength":3}`, registry.NewResult(true, registry.MustJSON(`"abc"`), ""),
			"-"},
		"long text": {`{"type":"string","maxLength":3}`, registry.NewResult(true, registry.MustJSON(`"abcd"`), ""),
			""},
		"no schema": {``, registry.NewResult(true, registry.MustJSON(`7`), ""), "-"},
	} {
		found := schema.NewValidator().CheckOutput(t.Context(), "t", []byte(tt.schema), tt.res)
		if tt.at == "-" && len(found) > 0 || tt.at != "-" && (len(found) != 1 || found[0].Pointer != tt.at) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// An output schema is as bounded as that of the arguments, and the error names it.
func TestOutputSchemasAreBounded(t *testing.T) {
	schemas := schema.NewValidator()
	s := spec("t", `{}`)
	for _, bad := range []string{`{"$ref":"https://example.com/x"}`, `{"pattern":"(?=a)"}`, `{"type":7}`} {
		s.OutputSchema = json.RawMessage(bad)
		if _, err := schemas.Compile(t.Context(), anyone, s); !errors.Is(err, registry.CodeInvalidRequest) ||
			!strings.HasPrefix(registry.AsError(err).Message, registry.FieldOutputSchema+": ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	s.OutputSchema = nil
	alone, err := schemas.Compile(t.Context(), anyone, s)
	if err != nil {
		t.Fatal(err)
	}
	s.OutputSchema = json.RawMessage(`{"type":"object"}`)
	if both, err := schemas.Compile(t.Context(), anyone, s); err != nil || both <= alone {
		t.Errorf("%d bytes compiled, %d with an output schema, %v", alone, both, err)
	}
}
