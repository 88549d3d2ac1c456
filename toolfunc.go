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

// SchemaOf returns the JSON Schema of a struct, as a tool's parameters. Fields are named as encoding/json names them;
// those without omitempty or omitzero are required, and no others are allowed. The tag `jsonschema:"…"` describes a
// field.
func SchemaOf[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, fmt.Errorf("farhand: schema of a tool's arguments: %w", err)
	}
	return json.Marshal(s)
}

// toolFunc is a tool that is a function.
type toolFunc[In any] struct {
	spec registry.ToolSpec
	run  func(context.Context, In) (any, error)
}

// NewTool returns a tool that is a function. Its parameters are SchemaOf[In], so run gets arguments that satisfy it,
// and a ctx that ends with the time of the call. What run returns is the output: a string as it is, nil as nothing,
// a registry.Result as it is, anything else as JSON. An error of run says that the tool failed, and its text is the
// output; an *registry.Error keeps its code.
func NewTool[In any](name, description string, run func(context.Context, In) (any, error)) (agent.Tool, error) {
	parameters, err := SchemaOf[In]()
	if err != nil {
		return nil, err
	}
	spec, err := registry.ToolSpec{Name: name, Description: description, Parameters: parameters}.Normalize()
	if err != nil {
		return nil, fmt.Errorf("farhand: the tool %q: %w", name, err)
	}
	return toolFunc[In]{spec: spec, run: run}, nil
}

// Spec implements agent.Tool.
func (t toolFunc[In]) Spec() registry.ToolSpec { return t.spec }

// Execute implements agent.Tool.
func (t toolFunc[In]) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	var in In
	if err := json.Unmarshal(args, &in); err != nil {
		return registry.Result{}, registry.Errorf(registry.CodeInvalidArguments,
			"The arguments of %q cannot be read: %v.", t.spec.Name, err)
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
