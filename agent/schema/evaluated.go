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
	items map[int]struct{}    // beyond those
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
	if e.items == nil {
		e.items = make(map[int]struct{})
	}
	e.items[i] = struct{}{}
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

// evaluatedCost is the work of noting one part.
const evaluatedCost = 8

// merge adds what one branch looked at.
func (w *walk) merge(into, from *evaluated) {
	switch {
	case into.all:
	case from.all:
		into.everything()
	case w.spend(evaluatedCost * (len(from.names) + len(from.items))):
		into.upTo(from.first)
		for name := range from.names {
			into.field(name)
		}
		for i := range from.items {
			into.item(i)
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
			if _, known := own.items[i]; !known {
				ok = w.part(s.UnevaluatedItems, v[i], item(i)) && ok
			}
		}
		own.everything()
	}
	return ok
}
