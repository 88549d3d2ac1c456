package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// object applies the keywords for objects. In the loud walk it goes on after a violation.
func (w *walk) object(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	ok := true
	if s.MinProperties != nil && len(v) < *s.MinProperties {
		ok = w.loud && w.report(&kind.MinProperties{Got: len(v), Want: *s.MinProperties})
	}
	if s.MaxProperties != nil && len(v) > *s.MaxProperties {
		ok = w.loud && w.report(&kind.MaxProperties{Got: len(v), Want: *s.MaxProperties})
	}
	if missing := w.missing(v, s.Required); missing != nil {
		ok = w.loud && w.report(&kind.Required{Missing: shownNames(missing)})
	}
	if !ok && !w.loud {
		return false
	}
	ok = w.dependencies(s, v, own) && ok
	if !ok && !w.loud {
		return false
	}
	ok = w.fields(s, v, own) && ok
	if s.PropertyNames != nil && (ok || w.loud) {
		for name := range v {
			if w.stopped() || !ok && !w.loud {
				return false
			}
			base := w.base // the name is a value of its own, at the place of the object
			w.base = len(w.open)
			ok = w.apply(s.PropertyNames, name, nil) && ok
			w.base = base
		}
	}
	if !ok && !w.loud {
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
		if !w.spend(1) || !ok && !w.loud {
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
			if w.loud && len(extra) < maxNamed {
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

// dependencies is what dependentSchemas and dependentRequired were until 2019.
func (w *walk) dependencies(s *jsonschema.Schema, v map[string]any, own *evaluated) bool {
	ok := true
	for name, dependency := range s.Dependencies {
		if !w.spend(1) || !ok && !w.loud {
			return false
		}
		if _, there := v[name]; !there {
			continue
		}
		switch d := dependency.(type) {
		case []string:
			if missing := w.missing(v, d); missing != nil {
				ok = w.loud && w.report(&kind.Dependency{Prop: name, Missing: shownNames(missing)})
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
		if !w.spend(1) || !ok && !w.loud {
			return false
		}
		if _, there := v[name]; there {
			ok = w.apply(sub, v, own) && ok
		}
	}
	for name, required := range s.DependentRequired {
		if !w.spend(1) || !ok && !w.loud {
			return false
		}
		if _, there := v[name]; !there {
			continue
		}
		if missing := w.missing(v, required); missing != nil {
			ok = w.loud && w.report(&kind.DependentRequired{Prop: name, Missing: shownNames(missing)})
		}
	}
	return ok
}

// missing returns names that the object lacks: the first ones, and only one in the quiet walk.
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
		if !w.loud || len(missing) == maxNamed {
			break
		}
	}
	return missing
}
