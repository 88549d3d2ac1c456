// Package localtool has what the gateway's own tools share: decoding their arguments, and building their results.
package localtool

import (
	"context"
	"encoding/json"

	"github.com/farhand/farhand/registry"
)

// Tool implements agent.Tool and agent.ArgsValidator by functions that take decoded arguments.
type Tool[In any] struct {
	Is    registry.ToolSpec
	Check func(In) error // rules that the schema cannot express; nil: none
	Run   func(context.Context, In) (registry.Result, error)
}

// Spec implements agent.Tool.
func (t Tool[In]) Spec() registry.ToolSpec { return t.Is }

// Validate implements agent.ArgsValidator.
func (t Tool[In]) Validate(_ context.Context, args json.RawMessage) error {
	var in In
	if err := json.Unmarshal(args, &in); err != nil || t.Check == nil {
		return err
	}
	return t.Check(in)
}

// Execute implements agent.Tool.
func (t Tool[In]) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	var in In
	if err := json.Unmarshal(args, &in); err != nil {
		return registry.Result{}, err
	}
	return t.Run(ctx, in)
}

// Failed returns a failed result with the reason for the model.
func Failed(reason string) registry.Result {
	return registry.Result{Output: reason, Error: reason}
}

// Result returns a successful result with the same content as text and as JSON.
func Result(text string, structured any) (registry.Result, error) {
	body, err := json.Marshal(structured)
	if err != nil {
		return registry.Result{}, err
	}
	checked, err := registry.ParseJSON(body)
	return registry.Result{Success: true, Output: text, Structured: checked}, err
}
