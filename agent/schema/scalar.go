package schema

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// byteCost is how many bytes of text one unit of work can scan.
const byteCost = 16

// regexCost is the work of parsing a regular expression in the arguments.
const regexCost = 10_000

func (w *walk) text(s *jsonschema.Schema, v string) bool {
	ok := true
	if s.MinLength != nil || s.MaxLength != nil {
		if !w.spend(len(v) / byteCost) {
			return false
		}
		length := utf8.RuneCountInString(v)
		if s.MinLength != nil && length < *s.MinLength {
			ok = w.explain && w.report(&kind.MinLength{Got: length, Want: *s.MinLength})
		}
		if s.MaxLength != nil && length > *s.MaxLength {
			ok = w.explain && w.report(&kind.MaxLength{Got: length, Want: *s.MaxLength})
		}
	}
	if s.Pattern != nil && (ok || w.explain) && !w.matches(s.Pattern, v) {
		ok = w.explain && w.report(&kind.Pattern{Got: cut(v), Want: s.Pattern.String()})
	}
	return ok
}

// checkFormat checks the format of a value. Schemas before 2019-09 require that.
func (w *walk) checkFormat(f *jsonschema.Format, v any) error {
	text, ok := v.(string)
	if !ok {
		return f.Validate(v)
	}
	if !w.spend(len(text)) {
		return nil
	}
	if f.Name == "regex" { // arguments must not cost more than a schema may
		if !w.spend(regexCost) {
			return nil
		}
		_, _, err := w.regexes.measure(text)
		return err
	}
	return f.Validate(v)
}

func (w *walk) number(s *jsonschema.Schema, v json.Number) bool {
	ok := true
	if s.Minimum != nil && w.compare(v, s.Minimum) < 0 {
		ok = w.explain && w.report(&kind.Minimum{Got: rational(v), Want: s.Minimum})
	}
	if s.Maximum != nil && w.compare(v, s.Maximum) > 0 {
		ok = w.explain && w.report(&kind.Maximum{Got: rational(v), Want: s.Maximum})
	}
	if s.ExclusiveMinimum != nil && w.compare(v, s.ExclusiveMinimum) <= 0 {
		ok = w.explain && w.report(&kind.ExclusiveMinimum{Got: rational(v), Want: s.ExclusiveMinimum})
	}
	if s.ExclusiveMaximum != nil && w.compare(v, s.ExclusiveMaximum) >= 0 {
		ok = w.explain && w.report(&kind.ExclusiveMaximum{Got: rational(v), Want: s.ExclusiveMaximum})
	}
	if s.MultipleOf != nil && !w.multiple(v, s.MultipleOf) {
		ok = w.explain && w.report(&kind.MultipleOf{Got: rational(v), Want: s.MultipleOf})
	}
	return ok
}

func (w *walk) compare(v json.Number, limit *big.Rat) int {
	if i, ok := smallInt(v); ok && limit.IsInt() && limit.Num().IsInt64() {
		return cmp.Compare(i, limit.Num().Int64())
	}
	if !w.spend(2 * numberCost(v)) {
		return 0
	}
	return rational(v).Cmp(limit)
}

func (w *walk) multiple(v json.Number, of *big.Rat) bool {
	if i, ok := smallInt(v); ok && of.IsInt() && of.Num().IsInt64() && of.Sign() != 0 {
		return i%of.Num().Int64() == 0
	}
	if of.Sign() == 0 || !w.spend(4*numberCost(v)) {
		return false
	}
	return new(big.Rat).Quo(rational(v), of).IsInt()
}

// numberCost is the work of parsing a number for exact arithmetic.
func numberCost(v json.Number) int {
	cost := 40 + len(v)
	if i := strings.IndexAny(string(v), "eE"); i >= 0 {
		cost += maxExponent
	}
	return cost
}

// smallInt parses a number that is written as an integer of up to 18 characters, as most are.
func smallInt(v json.Number) (int64, bool) {
	if len(v) > 18 || !isPlainInt(v) {
		return 0, false
	}
	i, err := strconv.ParseInt(string(v), 10, 64)
	return i, err == nil
}

// isPlainInt reports whether a number is written without fraction and exponent.
func isPlainInt(v json.Number) bool {
	for i := range len(v) {
		if c := v[i]; c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// rational returns the exact value of a number that checkNumber has accepted.
func rational(v json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(string(v))
	if !ok {
		return new(big.Rat)
	}
	return r
}

func (w *walk) isInteger(v json.Number) bool {
	return isPlainInt(v) || w.spend(numberCost(v)) && rational(v).IsInt()
}

func (w *walk) oneOf(values []any, v any) bool {
	return slices.ContainsFunc(values, func(candidate any) bool { return w.equal(v, candidate) })
}

// equal reports whether two values are equal. Numbers are equal if their values are, however they are written.
func (w *walk) equal(a, b any) bool {
	if !w.spend(1) {
		return false
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, there := b[name]
			if !there || !w.equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, w.equal)
	case string:
		b, ok := b.(string)
		return ok && len(a) == len(b) && w.spend(len(a)/byteCost) && a == b
	case json.Number:
		b, ok := b.(json.Number)
		return ok && w.equalNumbers(a, b)
	default: // null, true and false
		switch b.(type) {
		case map[string]any, []any: // not comparable
			return false
		}
		return a == b
	}
}

func (w *walk) equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	i, small := smallInt(a)
	if j, both := smallInt(b); small && both {
		return i == j
	}
	return w.spend(numberCost(a)+numberCost(b)) && rational(a).Cmp(rational(b)) == 0
}

const (
	fewItems = 20 // up to which all pairs are compared
	seenCost = 8  // the work of recording one item
)

func (w *walk) duplicates(items []any) (first, second int, found bool) {
	if len(items) <= fewItems {
		for j := range items {
			for i := range j {
				if w.equal(items[i], items[j]) {
					return i, j, true
				}
			}
		}
		return 0, 0, false
	}
	seen := make(map[uint64][]int)
	var h maphash.Hash
	for j, value := range items {
		h.Reset()
		if w.hash(&h, value); !w.spend(seenCost) {
			return 0, 0, false
		}
		sum := h.Sum64()
		for _, i := range seen[sum] {
			if w.equal(items[i], value) {
				return i, j, true
			}
		}
		seen[sum] = append(seen[sum], j)
	}
	return 0, 0, false
}

// hash adds a value to a hash. Equal values have equal sums.
func (w *walk) hash(h *maphash.Hash, v any) {
	if !w.spend(1) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		h.WriteByte('{')
		if !w.spend(4 * len(v)) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			w.hash(h, name)
			w.hash(h, v[name])
		}
	case []any:
		h.WriteByte('[')
		for _, item := range v {
			w.hash(h, item)
		}
		h.WriteByte(']')
	case string:
		if w.spend(len(v) / byteCost) {
			h.WriteByte('"')
			h.WriteString(v)
			h.WriteByte('"')
		}
	case json.Number:
		w.hashNumber(h, v)
	case bool:
		maphash.WriteComparable(h, v)
	default:
		h.WriteByte('n')
	}
}

func (w *walk) hashNumber(h *maphash.Hash, v json.Number) {
	h.WriteByte('0')
	if i, ok := smallInt(v); ok {
		maphash.WriteComparable(h, i)
		return
	}
	if !w.spend(2 * numberCost(v)) {
		return
	}
	r := rational(v)
	if r.IsInt() && r.Num().IsInt64() {
		maphash.WriteComparable(h, r.Num().Int64())
		return
	}
	h.Write(r.Num().Bytes())
	h.WriteByte('/')
	h.Write(r.Denom().Bytes())
}
