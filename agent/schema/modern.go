package schema

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var errTrailing = errors.New("the schema is followed by other data")

// Modernize returns a schema in the spelling of 2020-12. It rewrites older spellings and library habits whose meaning
// is clear: "required": true at a property, "exclusiveMinimum": true, items with a list, type "any" or "STRING", a
// keyword that is null. Schemas that declare draft-06, draft-07 or 2019-09 keep their meaning of items.
func Modernize(text []byte) []byte {
	doc, err := readOrdered(text)
	if err != nil {
		return text // compiling it reports the error
	}
	root, ok := doc.(*object)
	if !ok {
		return text
	}
	m := modernizer{}
	declared, _ := root.get("$schema").(string)
	switch draftOf(declared) {
	case "draft-03", "draft-04":
		m.old = true
		m.remove(root, "$schema")
	case "", "schema", "draft/2020-12":
	default:
		m.ownItems = true
	}
	m.schema(root)
	if !m.changed {
		return text
	}
	return appendOrdered(nil, root)
}

// draftOf returns the name of a draft: the part of its URL between json-schema.org and schema.
func draftOf(url string) string {
	_, rest, ok := strings.Cut(url, "://json-schema.org/")
	if !ok {
		return url
	}
	return strings.TrimSuffix(strings.TrimSuffix(rest, "#"), "/schema")
}

type modernizer struct {
	old      bool // draft-03 or draft-04 is declared
	ownItems bool // the declared draft allows a list in items
	changed  bool
}

// Keywords that contain a schema, a list of schemas or named schemas.
var (
	oneSchema = []string{
		"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties",
	}
	schemaLists  = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	namedSchemas = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties",
		"properties"}
)

// anyValue are keywords whose value may be null. At other keywords, null means nothing.
var anyValue = map[string]bool{"const": true, "default": true, "example": true, "examples": true}

// schema rewrites one schema. needed is set if the schema had "required": true, which belongs to the object around it.
func (m *modernizer) schema(s *object) (needed bool) {
	m.removeAll(s, func(k member) bool { return k.value == nil && !anyValue[k.name] })
	if flag, ok := s.get("required").(bool); ok {
		needed = flag
		m.remove(s, "required")
	}
	m.references(s)
	m.types(s)
	m.bounds(s)
	m.tuples(s)
	for _, k := range oneSchema {
		m.sub(s.get(k))
	}
	for _, k := range schemaLists {
		list, _ := s.get(k).([]any)
		for _, sub := range list {
			m.sub(sub)
		}
	}
	for _, k := range namedSchemas {
		named, _ := s.get(k).(*object)
		if named == nil {
			continue
		}
		var names []any
		for _, sub := range named.members {
			if m.sub(sub.value) {
				names = append(names, sub.name)
			}
		}
		if k == "properties" {
			m.require(s, names)
		}
	}
	return needed
}

func (m *modernizer) sub(v any) (needed bool) {
	s, ok := v.(*object)
	return ok && m.schema(s)
}

func (m *modernizer) require(s *object, names []any) {
	list, ok := s.get("required").([]any)
	if len(names) == 0 || !ok && s.find("required") >= 0 {
		return
	}
	known := make(map[string]bool, len(list))
	for _, item := range list {
		if name, ok := item.(string); ok {
			known[name] = true
		}
	}
	for _, name := range names {
		if !known[name.(string)] {
			list = append(list, name)
		}
	}
	s.set("required", list)
}

// bounds rewrites boolean exclusive bounds and divisibleBy to the keywords of 2020-12.
func (m *modernizer) bounds(s *object) {
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		flag, ok := s.get(exclusive).(bool)
		if !ok {
			continue
		}
		if m.remove(s, exclusive); flag {
			m.rename(s, bound, exclusive)
		}
	}
	if s.find("multipleOf") < 0 {
		m.rename(s, "divisibleBy", "multipleOf")
	}
}

// tuples rewrites a list of items, and the schema of further items, to the keywords of 2020-12.
func (m *modernizer) tuples(s *object) {
	if _, ok := s.get("items").([]any); !ok || m.ownItems {
		return
	}
	m.rename(s, "items", "prefixItems")
	m.rename(s, "additionalItems", "items")
}

// besideRef are the keywords that have a meaning next to a reference in draft-04, or are harmless there.
var besideRef = map[string]bool{"$ref": true, "title": true, "description": true, "default": true, "definitions": true}

// references rewrites the ids of draft-04, and removes keywords next to a reference, which draft-04 ignores.
func (m *modernizer) references(s *object) {
	if !m.old {
		return
	}
	if _, ok := s.get("$ref").(string); ok {
		m.removeAll(s, func(k member) bool { return !besideRef[k.name] })
	}
	id, isText := s.get("id").(string)
	switch anchor, isAnchor := strings.CutPrefix(id, "#"); {
	case isAnchor:
		m.rename(s, "id", "$anchor")
		s.set("$anchor", anchor)
	case isText:
		m.rename(s, "id", "$id")
	}
}

// typeNames are type names of JSON Schema, other languages and libraries.
var typeNames = map[string]string{
	"any": "any", "array": "array", "bool": "boolean", "boolean": "boolean", "dict": "object", "double": "number",
	"float": "number", "int": "integer", "integer": "integer", "list": "array", "long": "integer", "map": "object",
	"null": "null", "number": "number", "object": "object", "str": "string", "string": "string",
}

// types rewrites type names to those of JSON Schema. "any" is removed, because it restricts nothing.
func (m *modernizer) types(s *object) {
	list, isList := s.get("type").([]any)
	if !isList {
		list = []any{s.get("type")}
	}
	for i, item := range list {
		called, _ := item.(string)
		switch name := typeNames[strings.ToLower(called)]; name {
		case "any":
			m.remove(s, "type")
			return
		case "", called:
		default:
			m.changed = true
			if list[i] = name; !isList {
				s.set("type", name)
			}
		}
	}
}

// rename renames a keyword, if it is there, and removes an existing one with the new name.
func (m *modernizer) rename(s *object, from, to string) {
	if s.find(from) < 0 {
		return
	}
	m.changed = true
	m.remove(s, to)
	s.members[s.find(from)].name = to
}

func (m *modernizer) remove(s *object, name string) {
	m.removeAll(s, func(k member) bool { return k.name == name })
}

func (m *modernizer) removeAll(s *object, unwanted func(member) bool) {
	before := len(s.members)
	s.members = slices.DeleteFunc(s.members, unwanted)
	m.changed = m.changed || len(s.members) < before
}

// maxExpanded is the maximum number of subschemas after each reference is followed once. A few dozen bytes can exceed
// it; real schemas have hundreds.
const maxExpanded = 20_000

var errDynamicRef = errors.New("$dynamicRef and $recursiveRef are not supported")

// expansion walks all paths through a schema. It stops at a schema that is already on the path.
type expansion struct {
	size   int
	onPath map[*jsonschema.Schema]bool
}

func (e *expansion) expand(s *jsonschema.Schema) error {
	if s == nil || e.onPath[s] {
		return nil
	}
	if s.RecursiveRef != nil || s.DynamicRef != nil {
		return errDynamicRef
	}
	if e.size++; e.size > maxExpanded {
		return beyond("its references expand to more than %d subschemas", maxExpanded)
	}
	e.onPath[s] = true
	defer delete(e.onPath, s)
	for _, next := range subschemas(s) {
		if err := e.expand(next); err != nil {
			return err
		}
	}
	return nil
}

// subschemas returns the schemas that s applies to a value or to its parts. Some may be nil.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	tuple, _ := s.Items.([]*jsonschema.Schema) // before 2020-12
	all := slices.Concat([]*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020,
		s.UnevaluatedItems,
	}, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, tuple)
	all = slices.AppendSeq(all, maps.Values(s.Properties))
	all = slices.AppendSeq(all, maps.Values(s.PatternProperties))
	all = slices.AppendSeq(all, maps.Values(s.DependentSchemas))
	others := append(slices.Collect(maps.Values(s.Dependencies)), s.AdditionalProperties, s.AdditionalItems, s.Items)
	for _, v := range others { // a schema, or another type
		sub, _ := v.(*jsonschema.Schema)
		all = append(all, sub)
	}
	return all
}
