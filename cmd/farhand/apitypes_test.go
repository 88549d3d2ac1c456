package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// apiTypes returns the types of @farhand/client, which the pages use also: one of TypeScript for each schema of the
// OpenAPI document.
func apiTypes(t *testing.T, schemas string) string {
	t.Helper()
	var all map[string]object
	if err := json.Unmarshal([]byte(schemas), &all); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("// Generated from the OpenAPI document by `make docs`.\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		schema := all[name]
		if text, ok := schema["description"].(string); ok {
			fmt.Fprintf(&b, "\n/** %s */\n", strings.ReplaceAll(text, "*/", "* /"))
		}
		fmt.Fprintf(&b, "export type %s = %s;\n", name, typeOf(t, schema, ""))
	}
	return b.String()
}

// typeOf returns the type of a schema, whose inner lines begin with indent.
func typeOf(t *testing.T, schema object, indent string) string {
	if ref, ok := schema["$ref"].(string); ok {
		return strings.TrimPrefix(ref, schemaRef)
	}
	for _, union := range []string{"oneOf", "anyOf"} {
		if list, ok := schema[union].([]any); ok && schema["properties"] == nil {
			return join(list, func(one any) string { return typeOf(t, one.(object), indent) })
		}
	}
	if value, ok := schema["const"]; ok {
		return literal(t, value)
	}
	if values, ok := schema["enum"].([]any); ok {
		return join(values, func(v any) string { return literal(t, v) })
	}
	if kinds, ok := schema["type"].([]any); ok {
		return join(kinds, func(kind any) string {
			one := maps.Clone(schema)
			one["type"] = kind
			return typeOf(t, one, indent)
		})
	}
	switch schema["type"] {
	case "string", "boolean", "null":
		return schema["type"].(string)
	case "integer", "number":
		return "number"
	case "array":
		items, _ := schema["items"].(object)
		return "Array<" + typeOf(t, items, indent) + ">"
	case "object":
		return objectType(t, schema, indent)
	default:
		return "unknown"
	}
}

func objectType(t *testing.T, schema object, indent string) string {
	properties, _ := schema["properties"].(object)
	if len(properties) == 0 {
		values := "unknown"
		if of, ok := schema["additionalProperties"].(object); ok {
			values = typeOf(t, of, indent)
		}
		return "Record<string, " + values + ">"
	}
	required, _ := schema["required"].([]any)
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, optional := properties[name].(object), "?"
		if slices.Contains(required, any(name)) {
			optional = ""
		}
		if text, ok := property["description"].(string); ok {
			fmt.Fprintf(&b, "%s  /** %s */\n", indent, strings.ReplaceAll(text, "*/", "* /"))
		}
		if strings.Contains(name, "/") {
			name = strconv.Quote(name)
		}
		fmt.Fprintf(&b, "%s  %s%s: %s;\n", indent, name, optional, typeOf(t, property, indent+"  "))
	}
	return b.String() + indent + "}"
}

func join(all []any, form func(any) string) string {
	var texts []string
	for _, one := range all {
		if text := form(one); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " | ")
}

func literal(t *testing.T, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
