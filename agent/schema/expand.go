package schema

import (
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxExpanded bounds the subschemas a schema expands to when its references are followed once. A few dozen bytes can
// make that explode; real ones stay in the hundreds. It is a courtesy: arguments for such a tool could hardly be
// validated, and its author should hear that when it is registered.
const maxExpanded = 20_000

var errDynamicRef = errors.New("$dynamicRef and $recursiveRef are not supported")

// expansion walks all paths through a schema, cutting those that come back to where they have been.
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

// subschemas returns the schemas that s applies to a value or to its parts; some may be nil.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020,
		s.UnevaluatedItems,
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		all = append(all, list...)
	}
	for _, sub := range s.Properties {
		all = append(all, sub)
	}
	for _, sub := range s.PatternProperties {
		all = append(all, sub)
	}
	for _, sub := range s.DependentSchemas {
		all = append(all, sub)
	}
	for _, d := range s.Dependencies {
		sub, _ := d.(*jsonschema.Schema)
		all = append(all, sub)
	}
	for _, v := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} { // a schema, or something else
		sub, _ := v.(*jsonschema.Schema)
		all = append(all, sub)
	}
	tuple, _ := s.Items.([]*jsonschema.Schema) // before 2020-12
	return append(all, tuple...)
}
