package policy

import "context"

type decisionKey struct{}

// Value makes a context of a decision that has it as its only value, for DecisionOf.
func (d *Decision) Value(key any) any {
	if key == (decisionKey{}) {
		return d
	}
	return nil
}

// DecisionOf returns what policy says of the call of a local tool. ctx is that of its Execute, Validate or Authorize.
// With any other the decision is empty.
func DecisionOf(ctx context.Context) *Decision {
	if d, _ := ctx.Value(decisionKey{}).(*Decision); d != nil {
		return d
	}
	return new(Decision)
}

// ResourcesOf returns what a call of a local tool may use.
func ResourcesOf(ctx context.Context) Resources { return DecisionOf(ctx).Resources }
