package agent

import (
	"context"

	"github.com/farhand/farhand/agent/schema"
)

// validation is the hook that checks the arguments, the last one before a tool runs.
type validation struct{ schemas *schema.Validator }

// Name implements Hook.
func (validation) Name() string { return "validation" }

// Before implements BeforeHook.
func (v validation) Before(ctx context.Context, inv Invocation) (Decision, error) {
	return Pass(), v.schemas.Validate(ctx, inv.Caller.Owner(), inv.Spec, inv.Args.Raw(), inv.Deadline)
}
