package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// array applies the keywords for arrays. In the loud walk it goes on after a violation.
func (w *walk) array(s *jsonschema.Schema, v []any, own *evaluated) bool {
	ok := true
	if s.MinItems != nil && len(v) < *s.MinItems {
		ok = w.loud && w.report(&kind.MinItems{Got: len(v), Want: *s.MinItems})
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		ok = w.loud && w.report(&kind.MaxItems{Got: len(v), Want: *s.MaxItems})
	}
	if s.UniqueItems && (ok || w.loud) {
		if i, j, found := w.duplicates(v); found {
			ok = w.loud && w.report(&kind.UniqueItems{Duplicates: [2]int{i, j}})
		}
	}
	if !ok && !w.loud {
		return false
	}
	tuple, rest, restAllowed := itemsOf(s)
	ok = w.items(v, tuple, rest, own) && ok
	if extra := len(v) - len(tuple); !restAllowed && extra > 0 {
		ok = w.loud && w.report(&kind.AdditionalItems{Count: extra})
	}
	if s.Contains != nil && (ok || w.loud) {
		ok = w.contains(s, v, own) && ok
	}
	return ok
}

// itemsOf returns the schemas of the first items, and what is said of the others: a schema, nothing, or that there must
// not be any.
func itemsOf(s *jsonschema.Schema) (tuple []*jsonschema.Schema, rest *jsonschema.Schema, restAllowed bool) {
	if s.DraftVersion >= 2020 {
		return s.PrefixItems, s.Items2020, true
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		rest = items
	case []*jsonschema.Schema:
		tuple = items
		rest, _ = s.AdditionalItems.(*jsonschema.Schema)
	}
	return tuple, rest, s.AdditionalItems != false
}

func (w *walk) items(v []any, tuple []*jsonschema.Schema, rest *jsonschema.Schema, own *evaluated) bool {
	ok := true
	for i, value := range v {
		sub := rest
		if i < len(tuple) {
			sub = tuple[i]
		}
		if sub == nil || w.stopped() || !ok && !w.loud {
			break
		}
		ok = w.part(sub, value, item(i)) && ok
	}
	if rest != nil {
		own.everything()
	} else {
		own.upTo(min(len(tuple), len(v)))
	}
	return ok
}

func (w *walk) contains(s *jsonschema.Schema, v []any, own *evaluated) bool {
	loud := w.loud
	w.loud = false
	matched := 0
	var first []int // of those that match
	for i, value := range v {
		if w.stopped() {
			break
		}
		if !w.part(s.Contains, value, item(i)) {
			continue
		}
		if matched++; len(first) < maxMatched {
			first = append(first, i)
		}
		if s.DraftVersion >= 2020 && own != nil && w.spend(itemCost) {
			own.item(i)
		}
	}
	w.loud = loud
	least := 1
	if s.MinContains != nil {
		least = *s.MinContains
	}
	if s.MaxContains != nil && matched > *s.MaxContains {
		return w.loud && w.report(&kind.MaxContains{Got: first, Want: *s.MaxContains})
	}
	switch {
	case matched >= least:
		return true
	case !w.loud:
		return false
	case matched == len(v) && s.MinContains != nil:
		return w.report(&kind.MinContains{Got: first, Want: least})
	case len(v) == 0:
		return w.report(&kind.Contains{})
	}
	for i, value := range v { // what keeps each of the others from being one of them
		if w.stopped() {
			break
		}
		w.part(s.Contains, value, item(i))
	}
	return false
}
