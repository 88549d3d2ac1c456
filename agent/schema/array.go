package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// array applies the keywords for arrays. The explaining pass continues after a violation.
func (w *walk) array(s *jsonschema.Schema, v []any, own *evaluated) bool {
	ok := true
	if s.MinItems != nil && len(v) < *s.MinItems {
		ok = w.explain && w.report(&kind.MinItems{Got: len(v), Want: *s.MinItems})
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		ok = w.explain && w.report(&kind.MaxItems{Got: len(v), Want: *s.MaxItems})
	}
	if s.UniqueItems && (ok || w.explain) {
		if i, j, found := w.duplicates(v); found {
			ok = w.explain && w.report(&kind.UniqueItems{Duplicates: [2]int{i, j}})
		}
	}
	if !ok && !w.explain {
		return false
	}
	tuple, rest, restAllowed := itemsOf(s)
	ok = w.items(v, tuple, rest, own) && ok
	if extra := len(v) - len(tuple); !restAllowed && extra > 0 {
		ok = w.explain && w.report(&kind.AdditionalItems{Count: extra})
	}
	if s.Contains != nil && (ok || w.explain) {
		ok = w.contains(s, v, own) && ok
	}
	return ok
}

// itemsOf returns the schemas of the first items, that of further ones (nil: none), and whether these are allowed.
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
		if sub == nil || w.stopped() || !ok && !w.explain {
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
	explain := w.explain
	w.explain = false
	matched := 0
	var first []int // indexes of the first matches
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
	w.explain = explain
	least := 1
	if s.MinContains != nil {
		least = *s.MinContains
	}
	if s.MaxContains != nil && matched > *s.MaxContains {
		return w.explain && w.report(&kind.MaxContains{Got: first, Want: *s.MaxContains})
	}
	switch {
	case matched >= least:
		return true
	case !w.explain:
		return false
	case matched == len(v) && s.MinContains != nil:
		return w.report(&kind.MinContains{Got: first, Want: least})
	case len(v) == 0:
		return w.report(&kind.Contains{})
	}
	for i, value := range v { // collect why each other item does not match
		if w.stopped() {
			break
		}
		w.part(s.Contains, value, item(i))
	}
	return false
}

// object applies the keywords for objects. The explaining pass continues after a violation.
func (w *walk) object(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	ok := true
	if s.MinProperties != nil && len(v) < *s.MinProperties {
		ok = w.explain && w.report(&kind.MinProperties{Got: len(v), Want: *s.MinProperties})
	}
	if s.MaxProperties != nil && len(v) > *s.MaxProperties {
		ok = w.explain && w.report(&kind.MaxProperties{Got: len(v), Want: *s.MaxProperties})
	}
	if missing := w.missing(v, s.Required); missing != nil {
		ok = w.explain && w.report(&kind.Required{Missing: shownNames(missing)})
	}
	if !ok && !w.explain {
		return false
	}
	ok = w.dependencies(s, v, own) && ok
	if !ok && !w.explain {
		return false
	}
	ok = w.fields(s, v, own) && ok
	if s.PropertyNames != nil && (ok || w.explain) {
		for name := range v {
			if w.stopped() || !ok && !w.explain {
				return false
			}
			base := w.base // the name is a separate value, at the place of the object
			w.base = len(w.open)
			ok = w.apply(s.PropertyNames, name, nil) && ok
			w.base = base
		}
	}
	if !ok && !w.explain {
		return false
	}
	return w.dependents(s, v, own) && ok
}

// fields applies properties, patternProperties and additionalProperties.
func (w *walk) fields(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	if len(s.Properties) == 0 && len(s.PatternProperties) == 0 && s.AdditionalProperties == nil {
		return true
	}
	ok := true
	others, _ := s.AdditionalProperties.(*jsonschema.Schema)
	othersAllowed := s.AdditionalProperties != false
	var extra []string
	for name, value := range v {
		if !w.spend(1) || !ok && !w.explain {
			return false
		}
		named := false
		if sub, found := s.Properties[name]; found {
			named = true
			ok = w.part(sub, value, field(name)) && ok
		}
		for pattern, sub := range s.PatternProperties {
			if w.matches(pattern, name) {
				named = true
				ok = w.part(sub, value, field(name)) && ok
			}
		}
		switch {
		case named:
			if own != nil && w.spend(fieldCost) {
				own.field(name)
			}
		case others != nil:
			ok = w.part(others, value, field(name)) && ok
		case !othersAllowed:
			ok = false
			if w.explain && len(extra) < maxNamed {
				extra = append(extra, name)
			}
		}
	}
	if len(extra) > 0 {
		w.report(&kind.AdditionalProperties{Properties: shownNames(extra)})
	}
	if s.AdditionalProperties != nil {
		own.everything()
	}
	return ok
}

// dependencies applies dependencies, which dependentSchemas and dependentRequired replace since 2019-09.
func (w *walk) dependencies(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	ok := true
	for name, dependency := range s.Dependencies {
		if !w.spend(1) || !ok && !w.explain {
			return false
		}
		if _, there := v[name]; !there {
			continue
		}
		switch d := dependency.(type) {
		case []string:
			if missing := w.missing(v, d); missing != nil {
				ok = w.explain && w.report(&kind.Dependency{Prop: name, Missing: shownNames(missing)})
			}
		case *jsonschema.Schema:
			ok = w.apply(d, v, own) && ok
		}
	}
	return ok
}

func (w *walk) dependents(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	ok := true
	for name, sub := range s.DependentSchemas {
		if !w.spend(1) || !ok && !w.explain {
			return false
		}
		if _, there := v[name]; there {
			ok = w.apply(sub, v, own) && ok
		}
	}
	for name, required := range s.DependentRequired {
		if !w.spend(1) || !ok && !w.explain {
			return false
		}
		if _, there := v[name]; !there {
			continue
		}
		if missing := w.missing(v, required); missing != nil {
			ok = w.explain && w.report(&kind.DependentRequired{Prop: name, Missing: shownNames(missing)})
		}
	}
	return ok
}

// missing returns the first required names that the object lacks. The quiet pass returns at most one.
func (w *walk) missing(v map[string]any, required []string) []string {
	var missing []string
	for _, name := range required {
		if !w.spend(1) {
			return nil
		}
		if _, there := v[name]; there {
			continue
		}
		missing = append(missing, name)
		if !w.explain || len(missing) == maxNamed {
			break
		}
	}
	return missing
}
