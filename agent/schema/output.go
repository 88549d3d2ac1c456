package schema

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// OutputTime bounds the check of one answer.
const OutputTime = time.Second

// CheckOutput checks the answer of a tool of a tenant against its output schema, for at most OutputTime. Structured
// output is checked; text alone is checked as a JSON string. An answer that is too large or too deep for the schema has
// a violation that says so. Without violations the answer is valid, or the pod had no time for it. A failure has none.
func (s *Validator) CheckOutput(
	ctx context.Context, tenant string, outputSchema []byte, res registry.Result,
) []registry.Violation {
	if len(outputSchema) == 0 || !res.Success {
		return nil
	}
	text := res.Structured.Raw()
	if len(text) == 0 {
		text = strictjson.AppendString(nil, res.Output)
	}
	ctx, cancel := context.WithTimeout(ctx, OutputTime)
	defer cancel()
	violations, err := s.outputViolations(ctx, tenant, outputSchema, text)
	if input := (InputError{}); errors.As(err, &input) {
		return []registry.Violation{{Message: "the answer was not checked: " + input.Error()}}
	}
	return violations // none if the pod was busy
}

func (s *Validator) outputViolations(
	ctx context.Context, tenant string, source, text []byte,
) ([]registry.Violation, error) {
	deadline, _ := ctx.Deadline()
	compiled, err := s.get(ctx, share.Owner{Tenant: tenant}, deadline, registry.FieldOutputSchema, source)
	if err != nil {
		return nil, err
	}
	value, release, err := s.decodeOutput(ctx, tenant, text)
	defer release()
	if err != nil {
		return nil, err
	}
	return apply(ctx, compiled, value, deadline, func() (*share.Grant, error) {
		return s.heavyOutputs.Acquire(ctx, share.Owner{Tenant: tenant}, 1)
	})
}
