package schema

import (
	"encoding/json"
	"hash/maphash"
	"slices"
)

// oneOf reports whether a value is one of those listed.
func (w *walk) oneOf(values []any, v any) bool {
	for _, candidate := range values {
		if w.equal(v, candidate) {
			return true
		}
		if w.stopped() {
			return false
		}
	}
	return false
}

// equal compares two values; numbers are equal if their values are, however they are written.
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
		case map[string]any, []any: // which cannot be compared
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
	fewItems = 20 // up to which each is compared with each
	seenCost = 8  // the work of remembering one
)

// duplicates returns two items that are equal.
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

// hash adds a value: equal ones have equal sums.
func (w *walk) hash(h *maphash.Hash, v any) {
	if !w.spend(1) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		h.WriteByte('{')
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		if !w.spend(4 * len(names)) {
			return
		}
		slices.Sort(names)
		for _, name := range names {
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
		if v {
			h.WriteByte('t')
		} else {
			h.WriteByte('f')
		}
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
