package farhand

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// SchemaOf returns the JSON Schema of a struct, for a tool's parameters. Fields have their names of encoding/json.
// Those without omitempty, omitzero or a default are required, and no others are allowed. Tags of fields:
//
//	jsonschema:"…"         describes the field
//	enum:"low,high"        the allowed values; of a list, those of its items
//	minimum:"1"            the smallest number; of a list, of its items
//	maximum:"10"           the largest number; of a list, of its items
//	default:"low"          the value if there is none; JSON, unless the field is a string
func SchemaOf[T any]() (json.RawMessage, error) {
	s, err := schemaOf[T]()
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

func schemaOf[T any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[T](nil)
	if err == nil {
		err = applyTags[T](s)
	}
	if err != nil {
		return nil, fmt.Errorf("farhand: schema of a tool's arguments: %w", err)
	}
	return s, nil
}

type toolFunc[In any] struct {
	spec   registry.ToolSpec
	schema *jsonschema.Schema // nil: no argument has a default
	run    func(context.Context, In) (any, error)
}

// NewTool returns a tool that is a function. Its parameters are SchemaOf[In], so run receives arguments that satisfy
// it, defaults filled in, and a ctx that ends with the call's timeout. The output is what run returns: a string or
// registry.Result unchanged, nil as no output, anything else as JSON. If run returns an error, the tool has failed and
// the output is the error's text; an *registry.Error keeps its code.
func NewTool[In any](name, description string, run func(context.Context, In) (any, error)) (agent.Tool, error) {
	schema, err := schemaOf[In]()
	if err != nil {
		return nil, err
	}
	parameters, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	spec, err := registry.ToolSpec{Name: name, Description: description, Parameters: parameters}.Normalize()
	if err != nil {
		return nil, fmt.Errorf("farhand: the tool %q: %w", name, err)
	}
	if !hasDefaults(schema) {
		schema = nil
	}
	return toolFunc[In]{spec: spec, schema: schema, run: run}, nil
}

// Spec implements agent.Tool.
func (t toolFunc[In]) Spec() registry.ToolSpec { return t.spec }

// Execute implements agent.Tool.
func (t toolFunc[In]) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	in, err := t.decode(args)
	if err != nil {
		return registry.Result{}, registry.Errorf(registry.CodeInvalidArguments,
			"The arguments of %q are invalid: %v.", t.spec.Name, err)
	}
	out, err := t.run(ctx, in)
	if err != nil {
		if _, coded := errors.AsType[*registry.Error](err); coded || ctx.Err() != nil {
			return registry.Result{}, err
		}
		return registry.Result{Output: err.Error(), Error: err.Error()}, nil
	}
	switch out := out.(type) {
	case string:
		return registry.Result{Success: true, Output: out}, nil
	case registry.Result:
		return out, nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return registry.Result{}, fmt.Errorf("output of %q: %w", t.spec.Name, err)
	}
	output, err := registry.ParseJSON(raw)
	return registry.NewResult(true, output, ""), err
}

// decode reads the arguments, with the defaults of those that are missing.
func (t toolFunc[In]) decode(args json.RawMessage) (in In, err error) {
	if t.schema != nil {
		if args, err = withDefaults(t.schema, args); err != nil {
			return in, err
		}
	}
	return in, json.Unmarshal(args, &in)
}

// applyTags adds to the schema of T what the tags enum, minimum, maximum and default of its fields say.
func applyTags[T any](s *jsonschema.Schema) error {
	if err := tagType(reflect.TypeFor[T](), s); err != nil {
		return err
	}
	_, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	return err
}

// tagType applies the tags of a type's fields, however deep.
func tagType(t reflect.Type, s *jsonschema.Schema) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case s == nil:
		return nil
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return tagType(t.Elem(), s.Items)
	case t.Kind() == reflect.Map:
		return tagType(t.Elem(), s.AdditionalProperties)
	case t.Kind() != reflect.Struct || s.Properties == nil: // such as time.Time, which is a string
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		field := s.Properties[name]
		if f.Anonymous || !f.IsExported() || field == nil {
			continue
		}
		err := tagType(f.Type, field)
		if err == nil {
			err = tagField(f, field)
		}
		if err != nil {
			return fmt.Errorf("the field %s of %s: %w", f.Name, t, err)
		}
		if field.Default != nil {
			s.Required = slices.DeleteFunc(s.Required, func(required string) bool { return required == name })
		}
	}
	return nil
}

// tagField applies the tags of one field to its schema.
func tagField(f reflect.StructField, s *jsonschema.Schema) (err error) {
	each := s
	if kindOf(s) == "array" {
		each = s.Items
	}
	if text, ok := f.Tag.Lookup("enum"); ok {
		if each.Enum, err = enumOf(each, text); err != nil {
			return err
		}
	}
	if err := tagLimits(f.Tag, each); err != nil {
		return err
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		s.Default, err = defaultOf(f.Type, s, text)
	}
	return err
}

// tagLimits applies the tags minimum and maximum. The schema may have limits already: those of the field's type.
func tagLimits(tag reflect.StructTag, s *jsonschema.Schema) error {
	for name, limit := range map[string]**float64{"minimum": &s.Minimum, "maximum": &s.Maximum} {
		text, ok := tag.Lookup(name)
		if !ok {
			continue
		}
		number, err := strconv.ParseFloat(text, 64)
		if kind := kindOf(s); err != nil || kind != "integer" && kind != "number" {
			return fmt.Errorf("%s:%q must be a number, of a field that is one or a list of them", name, text)
		}
		if of := *limit; of != nil && (name == "minimum" && number < *of || name == "maximum" && number > *of) {
			return fmt.Errorf("%s:%q is looser than the limit of the field's type, %v", name, text, *of)
		}
		*limit = &number
	}
	if s.Minimum != nil && s.Maximum != nil && *s.Minimum > *s.Maximum {
		return errors.New("minimum is larger than maximum")
	}
	return nil
}

// defaultOf returns the value of the tag default. The field's type must be able to hold it: a tool would otherwise fail
// at every call that leaves the field out.
func defaultOf(t reflect.Type, s *jsonschema.Schema, text string) (value json.RawMessage, err error) {
	if value = json.RawMessage(text); kindOf(s) == "string" {
		if value, err = json.Marshal(text); err != nil {
			return nil, err
		}
	}
	if !json.Valid(value) {
		return nil, fmt.Errorf("default:%q is not JSON", text)
	}
	if err := json.Unmarshal(value, reflect.New(t).Interface()); err != nil {
		return nil, fmt.Errorf("default:%q: %w", text, err)
	}
	return value, nil
}

// enumOf returns the values of the tag enum. A field that may be null keeps that value.
func enumOf(s *jsonschema.Schema, text string) (values []any, err error) {
	if kind := kindOf(s); kind == "" || kind == "object" || kind == "array" {
		return nil, fmt.Errorf("enum:%q needs a field that is a text, a number or a boolean, or a list of them", text)
	}
	for one := range strings.SplitSeq(text, ",") {
		var value any = one
		if kindOf(s) != "string" {
			if err := json.Unmarshal([]byte(one), &value); err != nil {
				return nil, fmt.Errorf("enum:%q: %q is not JSON", text, one)
			}
		}
		values = append(values, value)
	}
	if slices.Contains(s.Types, "null") {
		values = append(values, nil)
	}
	return values, nil
}

// kindOf returns the type of a schema, beside null; empty: any, or several.
func kindOf(s *jsonschema.Schema) string {
	if s.Type != "" {
		return s.Type
	}
	kinds := slices.DeleteFunc(slices.Clone(s.Types), func(kind string) bool { return kind == "null" })
	if len(kinds) == 1 {
		return kinds[0]
	}
	return ""
}

// hasDefaults reports whether a member has a default, however deep.
func hasDefaults(s *jsonschema.Schema) bool {
	if s == nil {
		return false
	}
	for _, p := range s.Properties {
		if p.Default != nil || hasDefaults(p) {
			return true
		}
	}
	return hasDefaults(s.Items) || hasDefaults(s.AdditionalProperties)
}

// withDefaults returns a value that satisfies the schema, with the defaults of missing members of its objects. Objects
// that are missing themselves stay so.
func withDefaults(s *jsonschema.Schema, value json.RawMessage) (json.RawMessage, error) {
	switch value = bytes.TrimSpace(value); {
	case len(value) == 0 || !hasDefaults(s):
		return value, nil
	case value[0] == '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(value, &members); err != nil {
			return nil, err
		}
		for name, member := range members {
			of := s.Properties[name]
			if of == nil {
				of = s.AdditionalProperties
			}
			filled, err := withDefaults(of, member)
			if err != nil {
				return nil, err
			}
			members[name] = filled
		}
		for name, p := range s.Properties {
			if _, given := members[name]; !given && p.Default != nil {
				members[name] = p.Default
			}
		}
		return json.Marshal(members)
	case value[0] == '[':
		var items []json.RawMessage
		if err := json.Unmarshal(value, &items); err != nil {
			return nil, err
		}
		for i, item := range items {
			filled, err := withDefaults(s.Items, item)
			if err != nil {
				return nil, err
			}
			items[i] = filled
		}
		return json.Marshal(items)
	}
	return value, nil
}
