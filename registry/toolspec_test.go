package registry

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// nested returns a schema that nests that many levels deep.
func nested(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"not":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1))
}

// ofBytes returns a schema of that many bytes.
func ofBytes(n int) json.RawMessage {
	const empty = `{"title":""}`
	return json.RawMessage(empty[:len(empty)-2] + strings.Repeat("x", n-len(empty)) + `"}`)
}

// What is at a limit is kept; what is beyond it is refused, and the device is told which field it is.
func TestLimitsOfTools(t *testing.T) {
	for name, tt := range map[string]struct {
		spec  ToolSpec
		field string // of the refusal; empty: accepted
	}{
		"no schema":           {ToolSpec{}, ""},
		"null":                {ToolSpec{Parameters: json.RawMessage(`null`)}, ""},
		"a list":              {ToolSpec{Parameters: json.RawMessage(`[]`)}, "parameters"},
		"half an object":      {ToolSpec{Parameters: json.RawMessage(`{"a":`)}, "parameters"},
		"longest schema":      {ToolSpec{Parameters: ofBytes(MaxSchemaBytes)}, ""},
		"longer schema":       {ToolSpec{Parameters: ofBytes(MaxSchemaBytes + 1)}, "parameters"},
		"deepest schema":      {ToolSpec{Parameters: nested(MaxSchemaDepth)}, ""},
		"deeper schema":       {ToolSpec{Parameters: nested(MaxSchemaDepth + 1)}, "parameters"},
		"no output schema":    {ToolSpec{OutputSchema: json.RawMessage(`null`)}, ""},
		"output schema":       {ToolSpec{OutputSchema: ofBytes(MaxSchemaBytes)}, ""},
		"longer output":       {ToolSpec{OutputSchema: ofBytes(MaxSchemaBytes + 1)}, "output_schema"},
		"deeper output":       {ToolSpec{OutputSchema: nested(MaxSchemaDepth + 1)}, "output_schema"},
		"output of no schema": {ToolSpec{OutputSchema: json.RawMessage(`[]`)}, "output_schema"},
		"longest time":        {ToolSpec{TimeoutMS: MaxToolTimeout.Milliseconds()}, ""},
		"longer time":         {ToolSpec{TimeoutMS: MaxToolTimeout.Milliseconds() + 1}, "timeout_ms"},
		"negative time":       {ToolSpec{TimeoutMS: -1}, "timeout_ms"},
		"time beyond a clock": {ToolSpec{TimeoutMS: math.MaxUint64/1_000_000 + 1}, "timeout_ms"}, // 448 µs of 64 bits
		"level":               {ToolSpec{SecurityLevel: SecurityAdminOnly}, ""},
		"unknown level":       {ToolSpec{SecurityLevel: "Safe"}, "security_level"},
	} {
		tt.spec.Name = "tool"
		got, err := tt.spec.Normalize()
		switch {
		case tt.field == "" && (err != nil || got.Parameters[0] != '{'):
			t.Errorf("%s: %s, %v", name, got.Parameters, err)
		case tt.field != "" && (!errors.Is(err, CodeInvalidRequest) ||
			!strings.HasPrefix(AsError(err).Message, tt.field+": ")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A description is cut between characters, and not behind half of a sequence.
func TestLongDescriptionsAreCut(t *testing.T) {
	const flag = "🏳\ufe0f\u200d🌈" // four characters, one sign
	for _, text := range []string{strings.Repeat("é", MaxDescription+1), "x" + strings.Repeat(flag, MaxDescription)} {
		got, err := ToolSpec{Name: "tool", Description: text}.Normalize()
		n := utf8.RuneCountInString(got.Description)
		if err != nil || n > MaxDescription || n < MaxDescription-4 || !utf8.ValidString(got.Description) ||
			strings.HasSuffix(got.Description, "\u200d") {
			t.Errorf("%d characters, end %q, %v", n, got.Description[len(got.Description)-8:], err)
		}
	}
}

// A copy with other parameters has another hash, although the hash of the original is remembered.
func TestHashIsOfTheContent(t *testing.T) {
	a, err := ToolSpec{Name: "tool", Parameters: json.RawMessage(`{"type": "object"}`)}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	same, other := ToolSpec{Name: "tool", Parameters: json.RawMessage(`{"type":"object"}`)}, a
	other.Parameters = json.RawMessage(`{"type":"array"}`)
	returns := ToolSpec{Name: "tool", Parameters: a.Parameters, OutputSchema: json.RawMessage(`{}`)}
	if returns.Hash() == a.Hash() || returns.Size() != a.Size()+2 {
		t.Error("the output schema is not part of the definition")
	}
	if a.Hash() != same.Hash() || a.Hash() == other.Hash() {
		t.Errorf("%s, the same %s, another %s", a.Hash(), same.Hash(), other.Hash())
	}
}
