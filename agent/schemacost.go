package agent

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farhand/farhand/registry"
)

// The work of validating a value grows with three numbers: how many subschemas the schema expands to when its
// references are followed once, how many values there are, and, for a recursive schema, how often one and the same
// value is visited again per level of nesting. A few dozen bytes of schema can make the first or the last explode,
// and a validation cannot be interrupted, so all three are known before it starts.
const (
	// maxSchemaSize bounds the subschemas a schema expands to. Real ones stay in the hundreds.
	maxSchemaSize = 20_000

	// maxValidationWork bounds size × values × branching^depth, an upper bound of the subschemas visited. It is about
	// a second.
	maxValidationWork = 20_000_000

	// maxExponent bounds the decimal exponent of a number. Exact arithmetic on 1e1000000 takes milliseconds each.
	maxExponent = 999
)

var (
	errSchemaSize = errors.New("its references expand to too many subschemas")
	errDynamicRef = errors.New("$dynamicRef and $recursiveRef are not supported")
	errExponent   = errors.New("a number has an exponent beyond 999")
)

// schemaCost is what is known of a compiled schema.
type schemaCost struct {
	size      int // subschemas, references followed once
	branching int // visits of one value per level of recursion; 1 unless the schema is recursive
}

func measure(root *jsonschema.Schema) (schemaCost, error) {
	m := measurement{onPath: make(map[*jsonschema.Schema]bool), seen: make(map[*jsonschema.Schema]bool)}
	if err := m.expand(root); err != nil {
		return schemaCost{}, err
	}
	cost := schemaCost{size: m.size, branching: 1}
	if !m.recursive {
		return cost, nil
	}
	steps := 0 // shared by all walks: measuring must not become the expensive part
	for s := range m.seen {
		b, err := branchingOf(s, &steps)
		if err != nil {
			return schemaCost{}, err
		}
		cost.branching = max(cost.branching, b)
	}
	return cost, nil
}

// allows reports whether validating a value of so many parts, nested so deep, is worth starting.
func (c schemaCost) allows(values, depth int) bool {
	work := c.size * max(values, 1)
	for range depth {
		if c.branching == 1 || work > maxValidationWork {
			break
		}
		work *= c.branching
	}
	return work <= maxValidationWork
}

// measurement walks all paths through a schema, cutting those that come back to where they have been.
type measurement struct {
	size      int
	recursive bool
	onPath    map[*jsonschema.Schema]bool
	seen      map[*jsonschema.Schema]bool
}

func (m *measurement) expand(s *jsonschema.Schema) error {
	if m.onPath[s] {
		m.recursive = true
		return nil
	}
	if s.RecursiveRef != nil || s.DynamicRef != nil {
		return errDynamicRef
	}
	if m.size++; m.size > maxSchemaSize {
		return errSchemaSize
	}
	m.seen[s], m.onPath[s] = true, true
	defer delete(m.onPath, s)
	for _, next := range inPlace(s) {
		if err := m.expand(next); err != nil {
			return err
		}
	}
	for _, slot := range children(s) {
		for _, next := range slot.schemas {
			if err := m.expand(next); err != nil {
				return err
			}
		}
	}
	return nil
}

// branchingOf returns how many subschemas visit one and the same part of a value that s is applied to. Parts are
// told apart by name where the schema does; what applies to any property or item counts for each.
func branchingOf(s *jsonschema.Schema, steps *int) (int, error) {
	visits := make(map[part]int)
	onPath := make(map[*jsonschema.Schema]bool)
	var walk func(*jsonschema.Schema) error
	walk = func(s *jsonschema.Schema) error {
		if onPath[s] {
			return nil
		}
		if *steps++; *steps > maxSchemaSize {
			return errSchemaSize
		}
		onPath[s] = true
		defer delete(onPath, s)
		for _, slot := range children(s) {
			visits[slot.part] += len(slot.schemas)
		}
		for _, next := range inPlace(s) {
			if err := walk(next); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(s); err != nil {
		return 0, err
	}
	most := 1
	for p, n := range visits {
		if p != (part{item: p.item}) {
			n += visits[part{item: p.item}]
		}
		most = max(most, n)
	}
	return most, nil
}

// inPlace returns the subschemas that are applied to the same value as s.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	all := present(s.Ref, s.Not, s.If, s.Then, s.Else)
	all = append(append(append(all, s.AllOf...), s.AnyOf...), s.OneOf...)
	for _, d := range s.DependentSchemas {
		all = append(all, d)
	}
	for _, d := range s.Dependencies {
		all = append(all, asSchemas(d)...)
	}
	return all
}

// part names a part of a value: a property of an object or an item of an array, all of them when the name is empty.
type part struct {
	item bool
	name string
}

// slot is a part of a value with the subschemas that are applied to it.
type slot struct {
	part    part
	schemas []*jsonschema.Schema
}

// children returns the subschemas that are applied to parts of the value.
func children(s *jsonschema.Schema) []slot {
	var slots []slot
	for name, p := range s.Properties {
		slots = append(slots, slot{part{name: name}, present(p)})
	}
	properties := present(s.PropertyNames, s.UnevaluatedProperties, s.ContentSchema)
	for _, p := range s.PatternProperties {
		properties = append(properties, p)
	}
	properties = append(properties, asSchemas(s.AdditionalProperties)...)

	tuple := s.PrefixItems
	items := present(s.Contains, s.Items2020, s.UnevaluatedItems)
	items = append(items, asSchemas(s.AdditionalItems)...)
	if old, ok := s.Items.([]*jsonschema.Schema); ok { // before 2020-12
		tuple = old
	} else {
		items = append(items, asSchemas(s.Items)...)
	}
	for i, p := range tuple {
		slots = append(slots, slot{part{item: true, name: strconv.Itoa(i)}, present(p)})
	}
	return append(slots, slot{part{}, properties}, slot{part{item: true}, items})
}

func present(all ...*jsonschema.Schema) []*jsonschema.Schema {
	var found []*jsonschema.Schema
	for _, s := range all {
		if s != nil {
			found = append(found, s)
		}
	}
	return found
}

// asSchemas unpacks a keyword that may be a schema or something else.
func asSchemas(v any) []*jsonschema.Schema {
	s, _ := v.(*jsonschema.Schema)
	return present(s)
}

// survey counts the values in a JSON document and refuses numbers that are expensive to calculate with.
func survey(v any) (values int, err error) {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			n, err := survey(child)
			if err != nil {
				return 0, err
			}
			values += n
		}
	case []any:
		for _, child := range v {
			n, err := survey(child)
			if err != nil {
				return 0, err
			}
			values += n
		}
	case json.Number:
		if i := strings.IndexAny(string(v), "eE"); i >= 0 {
			if exp, err := strconv.Atoi(string(v[i+1:])); err != nil || exp > maxExponent || exp < -maxExponent {
				return 0, errExponent
			}
		}
	}
	return values + 1, nil
}

// checkWork refuses arguments that would take too long to validate. depth is how deep they nest.
func (c schemaCost) checkWork(value any, depth int) error {
	values, err := survey(value)
	if err != nil {
		return registry.Errorf(registry.CodeInvalidRequest, "args: %v.", err)
	}
	if !c.allows(values, depth) {
		return registry.Errorf(registry.CodeInvalidRequest,
			"args are too large, or nested too deep, to be validated against the schema of this tool.")
	}
	return nil
}
