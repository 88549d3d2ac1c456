package generate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// object is a JSON object.
type object = map[string]any

const schemaRef = "#/components/schemas/"

// pythonWidth is the longest line of generated Python.
const pythonWidth = 120

const pythonTypesHead = `"""The types of the gateway's HTTP API. ` +
	"Generated from the OpenAPI document by `make docs`." + `

Answers are dictionaries of these types as the gateway sent them, so they can have members that this version does not
know.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union
`

// pythonTypes is the writer of the Python client's types: one for each schema of the OpenAPI document. Members that can
// be absent are in a class of their own with total=False, because NotRequired needs Python 3.11.
type pythonTypes struct {
	t       *testing.T
	out     strings.Builder
	inClass bool // the last type written is a class
}

// pythonModule returns the module farhand.types.
func pythonModule(t *testing.T, schemas string) string {
	t.Helper()
	var all map[string]object
	if err := json.Unmarshal([]byte(schemas), &all); err != nil {
		t.Fatal(err)
	}
	p := &pythonTypes{t: t}
	p.out.WriteString(pythonTypesHead)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if schema := all[name]; hasMembers(schema) {
			p.class(name, schema)
		} else {
			p.alias(name, schema)
		}
	}
	return p.out.String()
}

func hasMembers(schema object) bool {
	properties, _ := schema["properties"].(object)
	return len(properties) > 0
}

// alias writes a type that is no object. Its parts are quoted, since they may stand further down.
func (p *pythonTypes) alias(name string, schema object) {
	p.inner(name, schema)
	text := p.typeOf(name, schema, true)
	if strings.HasPrefix(text, `"`) {
		text = "Union[" + text + "]" // an alias of one type that is defined further down
	}
	line := name + " = " + text
	if inner, ok := strings.CutPrefix(text, "Literal["); ok && len(line) > pythonWidth {
		line = name + " = Literal[\n    " + strings.ReplaceAll(strings.TrimSuffix(inner, "]"), ", ", ",\n    ") + ",\n]"
	} else if inner, ok := strings.CutPrefix(text, "Union["); ok && len(line) > pythonWidth {
		line = name + " = Union[\n    " + strings.ReplaceAll(strings.TrimSuffix(inner, "]"), ", ", ",\n    ") + ",\n]"
	}
	p.gap(false)
	p.out.WriteString(line + "\n")
	p.doc("", schema["description"])
}

// class writes a TypedDict.
func (p *pythonTypes) class(name string, schema object) {
	properties := schema["properties"].(object)
	required, _ := schema["required"].([]any)
	var must, may []string
	for _, member := range slices.Sorted(maps.Keys(properties)) {
		p.inner(name+pascal(member), properties[member].(object))
		if slices.Contains(required, any(member)) {
			must = append(must, member)
		} else {
			may = append(may, member)
		}
	}
	base := "TypedDict"
	if len(must) > 0 && len(may) > 0 {
		base = "_" + name
		p.members(base, "TypedDict", "", name, nil, properties, must)
	}
	if len(may) > 0 {
		p.members(name, base, ", total=False", name, schema["description"], properties, may)
	} else {
		p.members(name, base, "", name, schema["description"], properties, must)
	}
}

// members writes one class. Python cannot spell keywords and names with a slash in a class, so they stand in a call.
func (p *pythonTypes) members(class, base, total, of string, about any, properties object, names []string) {
	keywords := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isOddName(name) })
	if len(keywords) > 0 {
		var fields []string
		for _, name := range keywords {
			typed := strconv.Quote(p.typeOf(of+pascal(name), properties[name].(object), false))
			if strings.Contains(typed, `\"`) {
				typed = "'" + strings.ReplaceAll(strings.Trim(typed, `"`), `\"`, `"`) + "'"
			}
			fields = append(fields, fmt.Sprintf("        %q: %s,\n", name, typed))
		}
		if base != "TypedDict" {
			p.t.Fatalf("%s: a keyword among the optional members is not supported", class)
		}
		names = slices.DeleteFunc(names, isOddName)
		base = "_" + of + "Keywords"
		p.gap(false)
		rest := ""
		if total != "" {
			rest = "    total=False,\n"
		}
		fmt.Fprintf(&p.out, "%s = TypedDict(\n    %q,\n    {\n%s    },\n%s)\n", base, base,
			strings.Join(fields, ""), rest)
	}
	p.gap(true)
	head := fmt.Sprintf("class %s(%s%s):", class, base, total)
	if len(head) > pythonWidth {
		head = fmt.Sprintf("class %s(\n    %s%s\n):", class, base, total)
	}
	p.out.WriteString(head + "\n")
	if about == nil {
		about = "The members of " + of + " that are always there."
		if class == of {
			about = "Part of another type."
		}
	}
	p.doc("    ", about)
	if len(names) > 0 {
		p.out.WriteString("\n")
	}
	for _, name := range names {
		property := properties[name].(object)
		p.field(name, p.typeOf(of+pascal(name), property, false))
		p.doc("    ", property["description"])
	}
}

// gap separates the next type from the last one, as Python's formatters do.
func (p *pythonTypes) gap(class bool) {
	if class || p.inClass {
		p.out.WriteString("\n")
	}
	p.out.WriteString("\n")
	p.inClass = class
}

func (p *pythonTypes) field(name, kind string) {
	line := fmt.Sprintf("    %s: %s", name, kind)
	if inner, ok := strings.CutPrefix(kind, "Literal["); ok && len(line) > pythonWidth {
		line = fmt.Sprintf("    %s: Literal[\n        %s,\n    ]", name,
			strings.ReplaceAll(strings.TrimSuffix(inner, "]"), ", ", ",\n        "))
	}
	if inner, ok := strings.CutPrefix(kind, "Union["); ok && len(line) > pythonWidth {
		line = fmt.Sprintf("    %s: Union[\n        %s\n    ]", name, strings.TrimSuffix(inner, "]"))
	}
	p.out.WriteString(line + "\n")
}

// inner writes the classes of objects within a type.
func (p *pythonTypes) inner(name string, schema object) {
	if hasMembers(schema) {
		p.class(name, schema)
		return
	}
	if items, ok := schema["items"].(object); ok {
		p.inner(name+"Item", items)
	}
	if of, ok := schema["additionalProperties"].(object); ok {
		p.inner(name+"Value", of)
	}
	for _, union := range []string{"oneOf", "anyOf"} {
		list, _ := schema[union].([]any)
		for i, one := range list {
			p.inner(fmt.Sprintf("%sOption%d", name, i+1), one.(object))
		}
	}
}

// typeOf returns the type of a schema. Objects with members have the name of their place. If quoted is set, names of
// other types are in quotes.
func (p *pythonTypes) typeOf(name string, schema object, quoted bool) string {
	quote := func(name string) string {
		if quoted {
			return `"` + name + `"`
		}
		return name
	}
	if ref, ok := schema["$ref"].(string); ok {
		return quote(strings.TrimPrefix(ref, schemaRef))
	}
	if hasMembers(schema) {
		if kinds, ok := schema["type"].([]any); ok && slices.Contains(kinds, any("null")) {
			return "Union[" + quote(name) + ", None]"
		}
		return quote(name)
	}
	for _, union := range []string{"oneOf", "anyOf"} {
		if list, ok := schema[union].([]any); ok {
			return unionOf(len(list), func(i int) string {
				return p.typeOf(fmt.Sprintf("%sOption%d", name, i+1), list[i].(object), quoted)
			})
		}
	}
	if value, ok := schema["const"]; ok {
		return "Literal[" + pythonLiteral(p.t, value) + "]"
	}
	if values, ok := schema["enum"].([]any); ok {
		return "Literal[" + commas(values, func(v any) string { return pythonLiteral(p.t, v) }) + "]"
	}
	if kinds, ok := schema["type"].([]any); ok {
		return unionOf(len(kinds), func(i int) string {
			one := maps.Clone(schema)
			one["type"] = kinds[i]
			return p.typeOf(name, one, quoted)
		})
	}
	switch schema["type"] {
	case "string":
		return "str"
	case "boolean":
		return "bool"
	case "null":
		return "None"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "array":
		items, _ := schema["items"].(object)
		return "list[" + p.typeOf(name+"Item", items, quoted) + "]"
	case "object":
		if of, ok := schema["additionalProperties"].(object); ok {
			return "dict[str, " + p.typeOf(name+"Value", of, quoted) + "]"
		}
		return "dict[str, Any]"
	default:
		return "Any"
	}
}

// doc writes a description, which Python's tools show for what stands before it.
func (p *pythonTypes) doc(indent string, about any) {
	text, _ := about.(string)
	if text == "" {
		return
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), `"""`, `'''`)
	if strings.HasSuffix(text, `"`) {
		text += " "
	}
	one, width := indent+`"""`+text+`"""`, pythonWidth
	if len(one) <= pythonWidth && !strings.Contains(text, "\n") {
		p.out.WriteString(one + "\n")
		return
	}
	if len(one) <= pythonWidth+len(`"""`) {
		width -= len(`"""`) // a formatter would make one line of it
	}
	line := indent + `"""`
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > width {
			p.out.WriteString(line + "\n")
			line = indent + word
		} else if i > 0 {
			line += " " + word
		} else {
			line += word
		}
	}
	p.out.WriteString(line + "\n" + indent + "\"\"\"\n")
}

func unionOf(n int, at func(int) string) string {
	var kinds []string
	for i := range n {
		if kind := at(i); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 1 {
		return kinds[0]
	}
	return "Union[" + strings.Join(kinds, ", ") + "]"
}

func commas(all []any, form func(any) string) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, form(one))
	}
	return strings.Join(texts, ", ")
}

func pythonLiteral(t *testing.T, value any) string {
	switch value {
	case nil:
		return "None"
	case true:
		return "True"
	case false:
		return "False"
	}
	return jsonOf(t, value)
}

// pascal returns the name of a class for a member.
func pascal(member string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(member, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// isOddName reports whether a member's name is reserved by Python, or no identifier.
func isOddName(name string) bool {
	return strings.Contains(name, "/") || slices.Contains([]string{
		"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
		"finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or",
		"pass", "raise", "return", "try", "while", "with", "yield",
	}, name)
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
