// Package provenance finds where the values of a model's tool call come from. Sources are the person who talks to the
// model, the system prompt, and values that a person approved. All other values come only from outside, such as a tool
// result, or are new.
//
//	texts, each with its source ─▶ Conversation ─▶ Origins of the arguments of a call ─▶ Suspects
//
// The package does no input or output. Its work is bounded: values beyond the limits are not examined, count as coming
// from outside, and are reported as cut. Start reading at conversation.go and rule.go; address.go defines addresses.
package provenance

import (
	"slices"
)

// Effect is the effect of a tool.
type Effect string

// The effects. Unknown tools count as Changes.
const (
	Reads    Effect = "reads"
	Changes  Effect = "changes"
	Destroys Effect = "destroys"
)

// Suspects returns the values that a person should approve before the call, destinations first. It returns none if the
// call is as harmless as the person's own words. It implements the default rule:
//
// Once a conversation has read text from outside, a call with an effect asks for every address in its arguments that no
// trusted source contains. A call that only reads asks for such URLs only. A call with an effect also asks for every
// name, number and date that occurs only in running text from outside. A value that was a separate field of a result
// counts as a reference to a record. A call that destroys something asks unless all its values come from trusted
// sources. Weak values do not count there, because they can occur anywhere. The value of a destination must come from a
// trusted source, and must be a name that is not weak, not a text.
func (f Facts) Suspects(e Effect) []Argument {
	if !f.Tainted {
		return nil
	}
	var suspects []Argument
	vouched := false
	for _, a := range f.Arguments {
		switch {
		case a.vouches(e):
			vouched = true
		case a.Destination || a.suspicious(e):
			suspects = append(suspects, a)
		}
	}
	if e == Destroys && !vouched && len(suspects) == 0 {
		return []Argument{{Kind: KindName, Source: Model}} // no value says what is destroyed, and for whom
	}
	slices.SortStableFunc(suspects, func(a, b Argument) int { return a.rank() - b.rank() })
	return suspects
}

// rank orders values by importance for a person: destinations first.
func (a Argument) rank() int {
	switch {
	case a.Destination:
		return 0
	case a.Kind == KindAddress || a.Kind == KindURL:
		return 1
	default:
		return 2
	}
}

// vouches reports whether a trusted source contains a value, and not just by chance.
func (a Argument) vouches(e Effect) bool {
	switch {
	case !a.Source.trusted():
		return false
	case a.Destination:
		return !a.Weak && a.Kind != KindText
	default:
		return e != Destroys || !a.Weak
	}
}

// suspicious reports whether a value that no trusted source vouches for needs approval.
func (a Argument) suspicious(e Effect) bool {
	switch {
	case a.Kind == KindURL:
		return true
	case e == Reads:
		return false
	case a.Kind == KindAddress || a.Kind == KindCut:
		return true
	case a.Kind == KindText:
		return false
	case e == Destroys:
		return true
	default:
		return a.Source == Outside && !a.Field && !a.Weak
	}
}
