package schema

import (
	"encoding/json"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/farhand/farhand/registry"
)

// maxFrames bounds how deep a validation recurses: the nesting of the value times that of what applies to one value.
const maxFrames = 4096

var errTooDeep = errors.New("the schema applies too many subschemas to one value")

// walk is one validation: the compiled schema is walked beside the value. It does what jsonschema.Schema.Validate does,
// but counts its work, can be ended, and keeps no more violations than are shown. A value is first only said to be
// valid or not; what is wrong with it is looked for (loud) when something is.
type walk struct {
	meter
	loud  bool
	found []registry.Violation // of the loud walk
	path  []step               // to the value that is looked at; kept in the loud walk only

	regexes parseCost // of regular expressions among the arguments

	open   []*jsonschema.Schema // what is being applied, outermost first
	base   int                  // where those begin that are applied to the same value
	frames int
	room   [8]*jsonschema.Schema // for what is open of most schemas
}

// step leads from a value to a part of it: to a field, or to an item if the name is empty and item is not negative.
type step struct {
	name string
	item int
}

func field(name string) step { return step{name: name, item: -1} }

func item(i int) step { return step{item: i} }

// apply reports whether a value satisfies a schema. outer, unless it is nil, notes which parts of the value were
// looked at, for the schema around it; it means nothing if the answer is no.
func (w *walk) apply(s *jsonschema.Schema, v any, outer *evaluated) bool {
	if !w.spend(2) {
		return false
	}
	if s.Bool != nil {
		return *s.Bool || w.loud && w.report(&kind.FalseSchema{})
	}
	if w.frames++; w.frames > maxFrames {
		w.stop(errTooDeep)
		return false
	}
	w.open = append(w.open, s)
	ok := w.applyKeywords(s, v, outer)
	w.open = w.open[:len(w.open)-1]
	w.frames--
	return ok && !w.stopped()
}

func (w *walk) applyKeywords(s *jsonschema.Schema, v any, outer *evaluated) bool {
	// If the type is wrong, nothing else needs to be reported.
	if s.Types != nil && !w.hasType(*s.Types, v) {
		return w.loud && w.report(&kind.Type{Got: typeName(v), Want: s.Types.ToStrings()})
	}
	if s.Const != nil && !w.equal(v, *s.Const) {
		return w.loud && w.report(&kind.Const{Got: shown(v), Want: shown(*s.Const)})
	}
	if s.Enum != nil && !w.oneOf(s.Enum.Values, v) {
		return w.loud && w.report(&kind.Enum{Got: shown(v), Want: s.Enum.Values})
	}
	if s.Format != nil {
		if err := w.checkFormat(s.Format, v); err != nil {
			return w.loud && w.report(&kind.Format{Got: shown(v), Want: s.Format.Name, Err: err})
		}
	}
	own := outer
	if s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil {
		own = new(evaluated) // what the schemas around this one look at does not count in it
	}
	if s.Ref != nil {
		ok := w.follow(s.Ref, v, own)
		if s.DraftVersion < 2019 || !ok && !w.loud {
			return ok
		}
		return w.applyRest(s, v, own, outer) && ok
	}
	return w.applyRest(s, v, own, outer)
}

// applyRest applies what depends on the type of the value, and what combines schemas.
func (w *walk) applyRest(s *jsonschema.Schema, v any, own, outer *evaluated) bool {
	ok := true
	switch v := v.(type) {
	case map[string]any:
		ok = w.object(s, v, own)
	case []any:
		ok = w.array(s, v, own)
	case string:
		ok = w.text(s, v)
	case json.Number:
		ok = w.number(s, v)
	}
	if !ok && !w.loud {
		return false
	}
	ok = w.combine(s, v, own) && ok
	if own == outer || !ok && !w.loud {
		return ok
	}
	ok = w.unevaluated(s, v, own) && ok
	if ok && outer != nil {
		w.merge(outer, own)
	}
	return ok
}

// part applies a schema to a part of the value.
func (w *walk) part(s *jsonschema.Schema, v any, at step) bool {
	base := w.base
	w.base = len(w.open)
	if w.loud {
		w.path = append(w.path, at)
	}
	ok := w.apply(s, v, nil)
	if w.loud {
		w.path = w.path[:len(w.path)-1]
	}
	w.base = base
	return ok
}

// follow applies what a reference leads to, unless that is being applied to the same value already.
func (w *walk) follow(s *jsonschema.Schema, v any, own *evaluated) bool {
	open := w.open[w.base:]
	if !w.spend(len(open)) {
		return false
	}
	for _, o := range open {
		if o == s {
			return w.loud && w.report(endless{})
		}
	}
	return w.apply(s, v, own)
}

// quietly applies a schema of which only the answer counts.
func (w *walk) quietly(s *jsonschema.Schema, v any, own *evaluated) bool {
	loud := w.loud
	w.loud = false
	ok := w.apply(s, v, own)
	w.loud = loud
	return ok
}

// branch applies a schema that may fail without the one around it failing.
func (w *walk) branch(s *jsonschema.Schema, v any, own *evaluated) bool {
	if own == nil {
		return w.quietly(s, v, nil)
	}
	var branch evaluated
	ok := w.quietly(s, v, &branch)
	if ok {
		w.merge(own, &branch)
	}
	return ok
}

// combine applies the schemas that are applied to the same value as s.
func (w *walk) combine(s *jsonschema.Schema, v any, own *evaluated) bool {
	ok := true
	if s.Not != nil && w.branch(s.Not, v, own) {
		ok = w.loud && w.report(&kind.Not{})
	}
	for _, sub := range s.AllOf {
		if !ok && !w.loud || w.stopped() {
			return false
		}
		ok = w.apply(sub, v, own) && ok
	}
	if len(s.AnyOf) > 0 && (ok || w.loud) {
		ok = w.anyOf(s, v, own) && ok
	}
	if len(s.OneOf) > 0 && (ok || w.loud) {
		ok = w.exactlyOne(s, v, own) && ok
	}
	if s.If == nil || !ok && !w.loud {
		return ok
	}
	then := s.Else
	if w.branch(s.If, v, own) {
		then = s.Then
	}
	return (then == nil || w.apply(then, v, own)) && ok
}

func (w *walk) anyOf(s *jsonschema.Schema, v any, own *evaluated) bool {
	matched := false
	for _, sub := range s.AnyOf {
		if w.stopped() {
			return false
		}
		matched = w.branch(sub, v, own) || matched
		if matched && own == nil { // otherwise each may look at other parts
			return true
		}
	}
	return matched || w.explain(s.AnyOf, v)
}

func (w *walk) exactlyOne(s *jsonschema.Schema, v any, own *evaluated) bool {
	matched := -1
	for i, sub := range s.OneOf {
		if w.stopped() {
			return false
		}
		if !w.branch(sub, v, own) {
			continue
		}
		if matched >= 0 {
			return w.loud && w.report(&kind.OneOf{Subschemas: []int{matched, i}})
		}
		matched = i
	}
	return matched >= 0 || w.explain(s.OneOf, v)
}

// explain says of each branch why the value does not satisfy it. It returns false.
func (w *walk) explain(branches []*jsonschema.Schema, v any) bool {
	for _, sub := range branches {
		if !w.loud || w.stopped() {
			break
		}
		w.apply(sub, v, nil)
	}
	return false
}
