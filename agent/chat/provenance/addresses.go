package provenance

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

// addresses examines the addresses in a text, which is folded from value. It reports whether the whole text is one
// address. If isURL is set, the text counts as a URL, whatever it looks like.
func (s *search) addresses(pointer, value, folded string, isURL bool) (whole bool) {
	found := false
	eachAddress(folded, s.reader.split(folded), func(a address) bool {
		found = true
		whole = whole || covers(a, folded)
		s.address(pointer, spelled(value, folded, a.text), a, !covers(a, folded))
		return !s.cut
	})
	if isURL && !found && folded != "" {
		a := urlOf(folded)
		s.address(pointer, spelled(value, folded, a.text), a, false)
		return true
	}
	return whole
}

// covers reports whether an address is all of a text.
func covers(a address, folded string) bool {
	if len(folded) > 2*len(a.text)+16 {
		return false
	}
	rest := strings.Trim(folded, " .,;:<>()\"'/")
	if _, after, ok := strings.Cut(rest, "://"); ok {
		rest = after
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "mailto:"), "www.")
	return rest == a.text || a.kind == KindAddress && strings.NewReplacer(" ", "", "-", "", "+", "", "(", "", ")", "",
		".", "", "/", "").Replace(rest) == a.text
}

// spelled returns the spelling of a part of a folded text in the original text, because paths are case-sensitive.
func spelled(value, folded, part string) string {
	value = strings.TrimSpace(value)
	if i := strings.Index(folded, part); i >= 0 && len(value) == len(folded) && fold(value[i:i+len(part)]) == part {
		return value[i : i+len(part)]
	}
	return part
}

func (s *search) address(pointer, shown string, a address, part bool) {
	arg := Argument{Pointer: pointer, Value: shown, Kind: a.kind, Part: part}
	of, ok := s.findTrusted(pointer, named(a.text))
	if !ok {
		of, ok = s.below(pointer, a)
	}
	if !ok {
		of, ok = s.outside.addresses[a.text]
	}
	if !ok {
		of = origin{source: Model}
	}
	s.report(arg, of)
}

// named returns a lookup of an address.
func named(text string) func(*index) (origin, bool) {
	return func(x *index) (origin, bool) {
		of, ok := x.addresses[text]
		return of, ok
	}
}

// below returns the source that contains a URL above this one. A URL that carries data must itself be in a trusted
// source. That is a URL with a query, or with path words that no trusted source contains.
func (s *search) below(pointer string, a address) (origin, bool) {
	if a.host == "" || a.query || strings.ContainsAny(a.host, "@") {
		return origin{}, false
	}
	return s.findTrusted(pointer, func(x *index) (origin, bool) {
		for _, known := range x.hosts[a.host] {
			rest, ok := strings.CutPrefix(a.text, known.text+"/")
			if ok && !known.query && !leadsElsewhere(rest) && s.knows(pointer, rest) {
				return x.addresses[known.text], true
			}
		}
		return origin{}, false
	})
}

// maxWeak is the maximum number of path words that prove nothing.
const maxWeak = 4

// knows reports whether trusted sources contain all words of the rest of a URL, except for a few words that prove
// nothing.
func (s *search) knows(pointer, rest string) bool {
	plain, err := url.PathUnescape(rest)
	if err != nil {
		return false
	}
	plain = fold(plain)
	tokens, more := tokensOf(plain, maxNameTokens)
	weak, end := 0, int32(0)
	for _, t := range tokens {
		_, known := s.findTrusted(pointer, func(x *index) (origin, bool) {
			_, ok := x.last[t.hash]
			return origin{}, ok
		})
		if !known {
			if weak++; weak > maxWeak || !weakName(t.text(plain), []token{t}) {
				return false
			}
		}
		if !separates(plain[end:t.start]) {
			return false
		}
		end = t.end
	}
	return !more && separates(plain[end:])
}

// separates reports whether the text between the words of a path carries no data.
func separates(between string) bool {
	return len(between) == 0 || len(between) == 1 && strings.Contains("/.- ", between)
}

// leadsElsewhere reports whether the rest of a URL may lead out of the URL above it: up the path, or to a second
// address, for programs that read it as a list or forward to it. A truncated rest is unknown and also counts.
func leadsElsewhere(rest string) bool {
	return strings.Contains(rest, "..") || strings.Contains(rest, "%2e") || strings.Contains(rest, "://") ||
		strings.ContainsAny(rest, ",;@") || len(rest) > maxBelow
}

// maxBelow is the maximum length of the rest of a URL, in bytes. It is less than the length that is examined.
const maxBelow = maxAddress / 2

// urlNames are names of parameters whose value is fetched or receives data.
const urlNames = " url uri link href host hostname domain website webpage endpoint webhook "

// isURLName reports whether the name of a parameter means a URL.
func isURLName(pointer string) bool {
	name := ""
	for _, step := range strings.Split(pointer, "/") {
		if step != "" && !isIndex(step) { // otherwise an element of the named list
			name = step
		}
	}
	if i := strings.LastIndexAny(name, "_-"); i >= 0 {
		name = name[i+1:]
	}
	for i := len(name) - 1; i > 0; i-- {
		if isUpper(name[i]) && !isUpper(name[i-1]) { // imageUrl
			name = name[i:]
			break
		}
	}
	return strings.Contains(urlNames, " "+strings.TrimSuffix(strings.ToLower(name), "s")+" ")
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }

// listed reports whether the schema lists a value among the allowed values of an argument.
func (s *search) listed(pointer, value string) bool {
	if s.parsed == nil {
		if len(s.call.Schema) == 0 || json.Unmarshal(s.call.Schema, &s.parsed) != nil {
			s.parsed = false
		}
	}
	at := []any{s.parsed}
	for _, step := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		at = stepInto(at, step)
	}
	for _, node := range alternatives(at, 4) {
		m, _ := node.(map[string]any)
		values, _ := m["enum"].([]any)
		for _, v := range append(values, m["const"]) {
			if v == any(value) || isNumber(v, value) {
				return true
			}
		}
	}
	return false
}

func isNumber(v any, value string) bool {
	f, ok := v.(float64)
	return ok && strconv.FormatFloat(f, 'f', -1, 64) == value
}

// stepInto returns the schemas of a member or an element.
func stepInto(nodes []any, step string) (next []any) {
	for _, node := range alternatives(nodes, 4) {
		m, _ := node.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for _, n := range []any{properties[step], m["items"]} {
			if n != nil {
				next = append(next, n)
			}
		}
	}
	return next
}

// alternatives returns schemas and the schemas they are composed of, at most depth levels deep. It stops at about 100
// schemas.
func alternatives(nodes []any, depth int) []any {
	all := nodes
	for ; depth > 0 && len(nodes) > 0 && len(all) < 100; depth-- {
		var next []any
		for _, node := range nodes {
			m, _ := node.(map[string]any)
			for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
				list, _ := m[keyword].([]any)
				next = append(next, list...)
			}
		}
		nodes, all = next, append(all, next...)
	}
	return all
}
