// Package provenance finds where the values of a model's tool call come from: from the person who talks to the model,
// from the system prompt, from what a person approved, or only from what came from outside, such as a result of a tool.
//
//	texts, each with its source ─▶ Conversation ─▶ Origins of the arguments of a call ─▶ Suspects
//
// The package does no input or output. Its work is bounded: what is too much is not looked at, counts as coming from
// outside, and is said to be cut. Start reading at conversation.go and rule.go; address.go says what an address is.
package provenance

import (
	"slices"
)

// Effect is what a tool does besides answering.
type Effect string

// The effects. What is not known of a tool is taken to change something.
const (
	Reads    Effect = "reads"
	Changes  Effect = "changes"
	Destroys Effect = "destroys"
)

// Suspects returns the values for which a person should be asked before the call, destinations first, none if the call
// is as harmless as the person's own words. It is the default rule:
//
// Once a conversation has read something from outside, a call that has an effect asks for every address in its
// arguments that no trusted source has named; a call that only reads asks for such a URL. It also asks for every name,
// number and date that stands only in running text from outside: what was a field of its own in a result is taken for a
// reference to a record. A call that destroys something asks unless all its values come from trusted sources, and
// longer ones than two characters, which may stand anywhere. Of a destination only trusted sources may name the value,
// by such a name and not in a text.
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
		return []Argument{{Kind: KindName, Source: Model}} // nothing says what is destroyed, and for whom
	}
	slices.SortStableFunc(suspects, func(a, b Argument) int { return a.rank() - b.rank() })
	return suspects
}

// rank orders values by what a person should see first: where something goes.
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

// vouches reports whether a trusted source has named a value, and not only by chance.
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

// suspicious reports whether a value that no trusted source has named asks.
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
