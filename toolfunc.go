package farhand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
