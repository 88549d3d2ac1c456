package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// evaluated is which parts of an object or array were looked at by the schemas applied to it. It is kept only inside of
// unevaluatedProperties and unevaluatedItems, which apply to the others.
type evaluated struct {
	all   bool                // fields and items
	names map[string]struct{} // of fields
	first int                 // items
	items []uint64            // a bit for each; those beyond the first count
}

func (e *evaluated) field(name string) {
	if e == nil || e.all {
		return
	}
	if e.names == nil {
		e.names = make(map[string]struct{})
	}
	e.names[name] = struct{}{}
}

func (e *evaluated) item(i int) {
	if e == nil || e.all || i < e.first {
		return
	}
	for len(e.items) <= i/64 {
		e.items = append(e.items, 0)
	}
	e.items[i/64] |= 1 << (i % 64)
}

func (e *evaluated) hasItem(i int) bool {
	return i < e.first || i/64 < len(e.items) && e.items[i/64]&(1<<(i%64)) != 0
}

func (e *evaluated) upTo(items int) {
	if e != nil {
		e.first = max(e.first, items)
	}
}

func (e *evaluated) everything() {
	if e != nil {
		*e = evaluated{all: true}
	}
}

// The work of noting a field, which takes memory, and an item.
const (
	fieldCost = 32
	itemCost  = 1
)

// merge adds what one branch looked at.
func (w *walk) merge(into, from *evaluated) {
	switch {
	case into.all:
	case from.all:
		into.everything()
	case w.spend(fieldCost*len(from.names) + itemCost*len(from.items)):
		into.upTo(from.first)
		for name := range from.names {
			into.field(name)
		}
		for i, bits := range from.items {
			if i == len(into.items) {
				into.items = append(into.items, 0)
			}
			into.items[i] |= bits
		}
	}
}

// unevaluated applies the schemas for the parts nobody looked at.
func (w *walk) unevaluated(s *jsonschema.Schema, v any, own *evaluated) bool {
	ok := true
	switch v := v.(type) {
	case map[string]any:
		if s.UnevaluatedProperties == nil {
			return true
		}
		for name, value := range v {
			if own.all || w.stopped() || !ok && !w.loud {
				break
			}
			if _, known := own.names[name]; !known {
				ok = w.part(s.UnevaluatedProperties, value, field(name)) && ok
			}
		}
		own.everything()
	case []any:
		if s.UnevaluatedItems == nil {
			return true
		}
		for i := own.first; i < len(v); i++ {
			if own.all || w.stopped() || !ok && !w.loud {
				break
			}
			if !own.hasItem(i) {
				ok = w.part(s.UnevaluatedItems, v[i], item(i)) && ok
			}
		}
		own.everything()
	}
	return ok
}
