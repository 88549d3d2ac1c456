package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/farhand/farhand/registry"
)

// maxFrames is the maximum depth of a validation: the nesting of the value times that of the schemas for one value.
const maxFrames = 4096

var errTooDeep = errors.New("the schema applies too many subschemas to one value")

// walk is one validation. It walks the compiled schema along the value. It does what jsonschema.Schema.Validate does,
// but counts its work, can be cancelled, and keeps no more violations than are reported. The first pass only determines
// whether the value is valid. If it is not, a second pass (explain) collects the violations.
type walk struct {
	meter
	explain bool
	found   []registry.Violation // of the explaining pass
	path    []step               // to the current value; kept in the explaining pass only

	regexes parseCost // of regular expressions among the arguments

	open        []*jsonschema.Schema // schemas being applied, outermost first
	base        int                  // index in open of the first schema for the current value
	frames      int
	initialOpen [8]*jsonschema.Schema // initial storage of open; enough for most schemas
}

// step leads from a value to a part of it: to an item if item is not negative, else to a field.
type step struct {
	name string
	item int
}

func field(name string) step { return step{name: name, item: -1} }

func item(i int) step { return step{item: i} }

// apply reports whether a value satisfies a schema. Unless outer is nil, it records which parts of the value were
// evaluated, for the enclosing schema. outer is meaningless if the result is false.
func (w *walk) apply(s *jsonschema.Schema, v any, outer *evaluated) bool {
	if !w.spend(2) {
		return false
	}
	if s.Bool != nil {
		return *s.Bool || w.explain && w.report(&kind.FalseSchema{})
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
	// If the type is wrong, other violations are not useful.
	if s.Types != nil && !w.hasType(*s.Types, v) {
		return w.explain && w.report(&kind.Type{Got: typeName(v), Want: s.Types.ToStrings()})
	}
	if s.Const != nil && !w.equal(v, *s.Const) {
		return w.explain && w.report(&kind.Const{Got: shown(v), Want: shown(*s.Const)})
	}
	if s.Enum != nil && !w.oneOf(s.Enum.Values, v) {
		return w.explain && w.report(&kind.Enum{Got: shown(v), Want: s.Enum.Values})
	}
	if s.Format != nil {
		if err := w.checkFormat(s.Format, v); err != nil {
			return w.explain && w.report(&kind.Format{Got: shown(v), Want: s.Format.Name, Err: err})
		}
	}
	own := outer
	if s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil {
		own = new(evaluated) // evaluations of enclosing schemas do not count in it
	}
	if s.Ref != nil {
		ok := w.follow(s.Ref, v, own)
		if s.DraftVersion < 2019 || !ok && !w.explain {
			return ok
		}
		return w.applyRest(s, v, own, outer) && ok
	}
	return w.applyRest(s, v, own, outer)
}

// applyRest applies the keywords that depend on the value's type, and those that combine schemas.
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
	if !ok && !w.explain {
		return false
	}
	ok = w.combine(s, v, own) && ok
	if own == outer || !ok && !w.explain {
		return ok
	}
	ok = w.unevaluated(s, v, own) && ok
	if ok && outer != nil {
		w.merge(outer, own)
	}
	return ok
}

func (w *walk) part(s *jsonschema.Schema, v any, at step) bool {
	base := w.base
	w.base = len(w.open)
	if w.explain {
		w.path = append(w.path, at)
	}
	ok := w.apply(s, v, nil)
	if w.explain {
		w.path = w.path[:len(w.path)-1]
	}
	w.base = base
	return ok
}

// follow applies the target of a reference, unless the target is already being applied to the same value.
func (w *walk) follow(s *jsonschema.Schema, v any, own *evaluated) bool {
	open := w.open[w.base:]
	if !w.spend(len(open)) {
		return false
	}
	if slices.Contains(open, s) {
		return w.explain && w.report(endless{})
	}
	return w.apply(s, v, own)
}

func (w *walk) checkOnly(s *jsonschema.Schema, v any, own *evaluated) bool {
	before := w.explain
	w.explain = false
	ok := w.apply(s, v, own)
	w.explain = before
	return ok
}

// branch applies a schema whose failure does not fail the enclosing schema.
func (w *walk) branch(s *jsonschema.Schema, v any, own *evaluated) bool {
	if own == nil {
		return w.checkOnly(s, v, nil)
	}
	var branch evaluated
	ok := w.checkOnly(s, v, &branch)
	if ok {
		w.merge(own, &branch)
	}
	return ok
}

// combine applies the subschemas of s that apply to the same value.
func (w *walk) combine(s *jsonschema.Schema, v any, own *evaluated) bool {
	ok := true
	if s.Not != nil && w.branch(s.Not, v, own) {
		ok = w.explain && w.report(&kind.Not{})
	}
	for _, sub := range s.AllOf {
		if !ok && !w.explain || w.stopped() {
			return false
		}
		ok = w.apply(sub, v, own) && ok
	}
	if len(s.AnyOf) > 0 && (ok || w.explain) {
		ok = w.anyOf(s, v, own) && ok
	}
	if len(s.OneOf) > 0 && (ok || w.explain) {
		ok = w.exactlyOne(s, v, own) && ok
	}
	if s.If == nil || !ok && !w.explain {
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
		if matched && own == nil { // otherwise each branch may evaluate other parts
			return true
		}
	}
	return matched || w.explainBranches(s.AnyOf, v)
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
			return w.explain && w.report(&kind.OneOf{Subschemas: []int{matched, i}})
		}
		matched = i
	}
	return matched >= 0 || w.explainBranches(s.OneOf, v)
}

// explainBranches collects the violations of each branch. It returns false.
func (w *walk) explainBranches(branches []*jsonschema.Schema, v any) bool {
	for _, sub := range branches {
		if !w.explain || w.stopped() {
			break
		}
		w.apply(sub, v, nil)
	}
	return false
}

// Limits of the source of a schema. They are checked before compiling, because compile time grows with the square of
// some, and memory with the product of others. Real schemas stay far below.
const (
	maxNodes        = 4096      // objects and booleans: each may be a subschema
	maxPointerBytes = 512 << 10 // of the JSON pointers to all of them
	maxIDs          = 16        // $id, id
	maxIDBytes      = 512       // of each
	maxOddRefs      = 64        // references to anything but #/$defs/name and #/definitions/name
	maxSchemaDigits = 400       // characters of a number; the largest float64 written out has 309
)

// Limits of any number, in a schema and in arguments: exact arithmetic on 1e1000000 takes milliseconds.
const (
	maxExponent = 999
	maxDigits   = 1000
)

var (
	errExponent = errors.New("a number has an exponent beyond 999")
	errDigits   = errors.New("a number has more than 1000 characters")
)

// source holds the counts of a schema before it is compiled.
type source struct {
	nodes    int
	pointers int // bytes
	ids      int
	oddRefs  int
}

// survey counts a part of a schema. pointer is the length of its JSON pointer in bytes.
func (s *source) survey(v any, pointer int) error {
	switch v := v.(type) {
	case map[string]any:
		if err := s.node(pointer); err != nil {
			return err
		}
		for name, child := range v {
			if err := s.keyword(name, child); err != nil {
				return err
			}
			if err := s.survey(child, pointer+1+len(name)); err != nil {
				return err
			}
		}
	case []any:
		for i, child := range v {
			if err := s.survey(child, pointer+1+len(strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case bool:
		return s.node(pointer)
	case json.Number:
		if len(v) > maxSchemaDigits {
			return beyond("a number has more than %d characters", maxSchemaDigits)
		}
		return checkNumber(v)
	}
	return nil
}

func (s *source) node(pointer int) error {
	if s.nodes++; s.nodes > maxNodes {
		return beyond("a schema may have at most %d subschemas", maxNodes)
	}
	if s.pointers += pointer; s.pointers > maxPointerBytes {
		return beyond("its property names are too long or nested too deeply: the pointers to its subschemas may have "+
			"%d bytes in total", maxPointerBytes)
	}
	return nil
}

// keyword counts the keywords that make compiling slow.
func (s *source) keyword(name string, value any) error {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	switch name {
	case "$id", "id":
		if s.ids++; s.ids > maxIDs || len(text) > maxIDBytes {
			return beyond("a schema may have at most %d ids of at most %d bytes", maxIDs, maxIDBytes)
		}
	case "$ref", "$dynamicRef", "$recursiveRef":
		if plainRef(text) {
			return nil
		}
		if s.oddRefs++; s.oddRefs > maxOddRefs {
			return beyond("at most %d references may have other targets than #/$defs/name", maxOddRefs)
		}
	}
	return nil
}

// plainRef reports whether a reference leads to a definition at the root of the schema, or to the root.
func plainRef(ref string) bool {
	for _, prefix := range []string{"#/$defs/", "#/definitions/"} {
		if name, ok := strings.CutPrefix(ref, prefix); ok && !strings.Contains(name, "/") {
			return true
		}
	}
	return ref == "#"
}

// checkNumbers rejects numbers that make exact arithmetic expensive.
func checkNumbers(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			if err := checkNumbers(child); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range v {
			if err := checkNumbers(child); err != nil {
				return err
			}
		}
	case json.Number:
		return checkNumber(v)
	}
	return nil
}

func checkNumber(n json.Number) error {
	if len(n) <= 3 { // most numbers; none has a large exponent
		return nil
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if exp, err := strconv.Atoi(string(n[i+1:])); err != nil || exp > maxExponent || exp < -maxExponent {
			return errExponent
		}
	}
	if len(n) > maxDigits {
		return errDigits
	}
	return nil
}

// decodedSize estimates the memory of a decoded JSON text, in bytes, without decoding it.
func decodedSize(text []byte) int {
	const (
		objectBytes = 350 // with up to eight fields
		valueBytes  = 60
	)
	objects, values := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
		case '{':
			objects++
		case ',', ':', '[':
			values++
		}
	}
	return len(text) + objects*objectBytes + values*valueBytes
}

// stringLength returns the length of the string at the start of text, including quotes.
func stringLength(text []byte) int {
	for end := 1; ; end++ {
		next := bytes.IndexByte(text[end:], '"')
		if next < 0 {
			return len(text)
		}
		end += next
		escapes := 0
		for text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}
