package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// The library's own validator is the oracle: what it says of a value, the walk says too.

func decoded(t testing.TB, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// oracle returns what is wrong with a value, pointer and message in one text, sorted.
func oracle(t testing.TB, schema string, v any) []string {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(location, decoded(t, schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(location)
	if err != nil {
		t.Fatalf("%v: %s", err, schema)
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(s.Validate(v), &invalid) {
		return nil
	}
	printer := message.NewPrinter(language.English)
	var all []string
	var leaves func(*jsonschema.ValidationError)
	leaves = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			leaves(cause)
		}
		if len(e.Causes) == 0 {
			at := walk{}
			for _, name := range e.InstanceLocation {
				at.path = append(at.path, field(name))
			}
			text := e.ErrorKind.LocalizedString(printer)
			if _, ok := e.ErrorKind.(*kind.RefCycle); ok {
				text = endless{}.LocalizedString(printer)
			}
			all = append(all, at.pointer()+" "+text)
		}
	}
	leaves(invalid)
	return sorted(all)
}

func sorted(all []string) []string {
	for i, line := range all { // the library tells names in the order of a map
		if head, names, ok := strings.Cut(line, "additional properties "); ok {
			names, tail, _ := strings.Cut(names, " not allowed")
			list := strings.Split(names, ", ")
			slices.Sort(list)
			all[i] = head + "additional properties " + strings.Join(list, ", ") + tail
		}
	}
	slices.Sort(all)
	return all
}

// agree compares verdict and, where all of them are shown, violations.
func agree(t testing.TB, schema string, v any) {
	t.Helper()
	want := oracle(t, schema, v)
	s, err := Compile([]byte(schema))
	if err != nil {
		t.Fatalf("%v: %s", err, schema)
	}
	found, err := s.Validate(t.Context(), v, Work{})
	if err != nil {
		t.Fatalf("%v: %s", err, schema)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Pointer+" "+f.Message)
	}
	got = sorted(got)
	value, _ := json.Marshal(v)
	if (len(got) == 0) != (len(want) == 0) {
		t.Fatalf("schema %s\nvalue %s\n got %q\nwant %q", schema, value, got, want)
	}
	// The library looks on for parts that were not looked at by subschemas that failed, and names the root instead of
	// the object that has a wrong name.
	if strings.Contains(schema, "unevaluated") || strings.Contains(schema, "propertyNames") ||
		len(want) >= maxViolations {
		return
	}
	if !slices.Equal(got, want) {
		t.Fatalf("schema %s\nvalue %s\n got %q\nwant %q", schema, value, got, want)
	}
}

// generator makes schemas and values that have something to do with each other: they share few names and values.
type generator struct{ *rand.Rand }

func (g generator) pick(all ...any) any { return all[g.IntN(len(all))] }

func (g generator) name() string { return g.pick("a", "b", "c", "x1", "x2").(string) }

func (g generator) scalar() any {
	return g.pick(nil, true, false, "", "a", "b", "x1", "abc", "äö", json.Number("0"), json.Number("-0"),
		json.Number("1"), json.Number("1.0"),
		json.Number("2"), json.Number("1e1"), json.Number("10"), json.Number("0.5"),
		json.Number("12345678901234567890"), json.Number("-3"))
}

func (g generator) value(depth int) any {
	if depth == 0 || g.IntN(4) == 0 {
		return g.scalar()
	}
	if g.IntN(2) == 0 {
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(depth-1))
		}
		if g.IntN(10) == 0 {
			for range 25 {
				list = append(list, g.scalar())
			}
		}
		return list
	}
	fields := map[string]any{}
	for range g.IntN(4) {
		fields[g.name()] = g.value(depth - 1)
	}
	return fields
}

func (g generator) schemas(depth, most int) []any {
	var all []any
	for range 1 + g.IntN(most) {
		all = append(all, g.schema(depth))
	}
	return all
}

func (g generator) named(depth int) map[string]any {
	all := map[string]any{}
	for range 1 + g.IntN(3) {
		all[g.name()] = g.schema(depth)
	}
	return all
}

func (g generator) names() []any {
	all := map[string]bool{}
	for range 1 + g.IntN(3) {
		all[g.name()] = true
	}
	var list []any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name)
	}
	return list
}

func (g generator) schema(depth int) any {
	if g.IntN(12) == 0 {
		return g.IntN(3) > 0
	}
	s := map[string]any{}
	for range 1 + g.IntN(3) {
		g.keyword(s, max(depth-1, 0), depth <= 0)
	}
	return s
}

func (g generator) keyword(s map[string]any, depth int, last bool) {
	number := func() any { return g.pick(json.Number("0"), json.Number("1"), json.Number("1.5"), json.Number("3")) }
	n := g.IntN(38)
	if last {
		n = g.IntN(19)
	}
	switch n {
	case 0, 1, 2:
		s["type"] = g.pick("null", "boolean", "number", "integer", "string", "array", "object", "object", "array")
	case 3:
		s["type"] = []any{"string", g.pick("integer", "object", "array")}
	case 4:
		s["enum"] = []any{g.scalar(), g.value(1), g.scalar()}
	case 5:
		s["const"] = g.value(1)
	case 6:
		s["minimum"] = number()
	case 7:
		s["maximum"] = number()
	case 8:
		s["exclusiveMinimum"] = number()
	case 9:
		s["exclusiveMaximum"] = number()
	case 10:
		s["multipleOf"] = g.pick(json.Number("2"), json.Number("0.5"), json.Number("3"))
	case 11:
		s[g.pick("minLength", "minItems", "minProperties").(string)] = g.pick(json.Number("1"), json.Number("2"))
	case 12:
		s[g.pick("maxLength", "maxItems", "maxProperties").(string)] = g.pick(json.Number("0"), json.Number("2"))
	case 13:
		s["pattern"] = g.pick("^x", "a|b", "[0-9]$", `^\pL{1,2}$`)
	case 14:
		s["required"] = g.names()
	case 15:
		s["uniqueItems"] = true
	case 16:
		s["dependentRequired"] = map[string]any{g.name(): g.names()}
	case 17, 18:
		s["$ref"] = g.pick("#", "#/$defs/p", "#/$defs/q")
	case 19, 20, 21:
		s["properties"] = g.named(depth)
	case 22:
		s["patternProperties"] = map[string]any{"^x": g.schema(depth), g.pick("a", "1$").(string): g.schema(depth)}
	case 23:
		s["additionalProperties"] = g.schema(depth)
	case 24:
		s["propertyNames"] = g.schema(depth)
	case 25:
		s["dependentSchemas"] = g.named(depth)
	case 26:
		s["items"] = g.schema(depth)
	case 27:
		s["prefixItems"] = g.schemas(depth, 2)
	case 28:
		s["contains"] = g.schema(depth)
		if g.IntN(2) == 0 {
			s[g.pick("minContains", "maxContains").(string)] = g.pick(json.Number("0"), json.Number("1"),
				json.Number("2"))
		}
	case 29:
		s["not"] = g.schema(depth)
	case 30, 31:
		s["allOf"] = g.schemas(depth, 3)
	case 32, 33:
		s["anyOf"] = g.schemas(depth, 3)
	case 34:
		s["oneOf"] = g.schemas(depth, 3)
	case 35:
		s["if"], s["then"], s["else"] = g.schema(depth), g.schema(depth), g.schema(depth)
	case 36:
		s["unevaluatedProperties"] = g.schema(depth)
	case 37:
		s["unevaluatedItems"] = g.schema(depth)
	}
}

// text writes a value as JSON; numbers stay as they are.
func text(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAgreesWithTheLibrary(t *testing.T) {
	for seed := range uint64(400) {
		generatedCase(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func generatedCase(t testing.TB, seed uint64) {
	g := generator{rand.New(rand.NewPCG(seed, 10))}
	root, ok := g.schema(3).(map[string]any)
	if !ok {
		return
	}
	root["$defs"] = map[string]any{"p": g.schema(2), "q": g.schema(1)}
	schema := text(t, root)
	for range 4 {
		agree(t, schema, g.value(3))
	}
}

func FuzzAgreesWithTheLibrary(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { generatedCase(t, seed) })
}

// Keywords of older drafts, and what the generator does not make.
func TestOlderDraftsAgreeWithTheLibrary(t *testing.T) {
	for _, draft := range []string{"draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"} {
		for _, tt := range []struct {
			keywords string
			values   []string
		}{
			{`"items":[{"type":"string"},{"type":"integer"}]`, []string{`["a",1]`, `[1,"a",null]`, `[]`}},
			{`"items":[{"type":"string"}],"additionalItems":false`, []string{`["a"]`, `["a",1,2]`, `[1]`}},
			{`"items":[{"type":"string"}],"additionalItems":{"type":"null"}`,
				[]string{`["a",null]`, `["a",1,2]`, `[]`}},
			{`"items":{"type":"string"},"additionalItems":false`, []string{`["a","b"]`, `[1]`}},
			{`"dependencies":{"a":["b"],"b":{"required":["c"]}}`,
				[]string{`{"a":1}`, `{"a":1,"b":1}`, `{"a":1,"b":1,"c":1}`}},
			{`"format":"email"`, []string{`"a@b.c"`, `"a"`, `1`}},
			{`"format":"date-time"`, []string{`"2026-01-01T00:00:00Z"`, `"x"`}},
			{`"format":"regex"`, []string{`"a+"`, `"("`}},
			{`"definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s","minLength":2}}`,
				[]string{`{"a":"x"}`, `{"a":1}`, `{"a":"xx"}`}},
			{`"contains":{"type":"string"}`, []string{`[1]`, `["a"]`, `[]`}},
			{`"if":{"type":"string"},"then":{"minLength":1},"else":{"type":"integer"}`,
				[]string{`""`, `"a"`, `1`, `null`}},
			{`"$ref":"#"`, []string{`1`}},
			{`"not":{"$ref":"#"}`, []string{`1`}},
			{`"properties":{"a":{"$ref":"#"}},"type":"object"`, []string{`{"a":{"a":{}}}`, `{"a":{"a":1}}`}},
		} {
			modern := draft == "draft/2020-12"
			if modern && strings.Contains(tt.keywords, `"items":[`) {
				continue
			}
			url := "http://json-schema.org/" + draft + "/schema"
			if strings.Contains(draft, "/") {
				url = "https://json-schema.org/" + draft + "/schema"
			}
			schema := fmt.Sprintf(`{"$schema":%q,%s}`, url, tt.keywords)
			for _, v := range tt.values {
				agree(t, schema, decoded(t, v))
			}
		}
	}
}
