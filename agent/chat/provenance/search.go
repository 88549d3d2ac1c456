package provenance

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of the work for one call.
const (
	maxSteps  = 1 << 20 // comparisons of tokens
	maxFound  = 256     // arguments in the result; beyond, as many addresses again
	maxLeaves = 4096    // values that are examined
	maxArgs   = 1 << 20 // bytes of values that are examined, with their pointers
	maxShown  = 200     // bytes of a value in the result
)

// search examines the values of one call.
type search struct {
	*Conversation
	budget int
	call   Call

	defined bool // an address that begins with one from outside counts as that one
	parsed  any  // the schema of the call

	leaves, bytes int
	found         []Argument
	cut           bool // the rest is not examined
	skipped       bool // of the rest, only addresses matter
}

// args examines all values of the arguments.
func (s *search) args() {
	eachScalar(s.call.Args, func(pointer string, token jsontext.Token, key bool) bool {
		value := token.String()
		s.leaves++
		s.bytes += len(pointer) + len(value)
		switch {
		case s.leaves > maxLeaves || s.bytes > maxArgs:
			s.stop()
		case key:
			s.key(pointer, value)
		case token.Kind() == '0':
			s.number(pointer, value)
		default:
			s.text(pointer, value)
		}
		return !s.cut
	})
}

// stop ends the search. Unexamined values count as coming from outside.
func (s *search) stop() {
	if !s.cut {
		s.cut = true
		s.found = append(s.found, Argument{Kind: KindCut, Source: Outside})
	}
}

// report adds a value to the result. The zero origin is the model. Addresses are reported for longer than other values,
// so that a tool that only reads may take a long list.
func (s *search) report(a Argument, of origin) {
	a.Source, a.Where = cmp.Or(of.source, Model), of.id
	a.Value, a.Destination = shorten(a.Value), s.isDestination(a.Pointer)
	switch minor := !a.Destination && a.Kind != KindAddress && a.Kind != KindURL; {
	case len(s.found) < maxFound, !minor && len(s.found) <= 2*maxFound:
		s.found = append(s.found, a)
	case !minor:
		s.stop()
	case !s.skipped:
		s.skipped = true
		s.found = append(s.found, Argument{Kind: KindCut, Source: Outside, Part: true})
	}
}

func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// key examines the name of a member. Only addresses in it matter, unless it is a destination.
func (s *search) key(pointer, name string) {
	if s.isDestination(pointer[:strings.LastIndexByte(pointer, '/')]) {
		s.text(pointer, name)
		return
	}
	s.addresses(pointer, name, fold(name), false)
	s.addresses(pointer, name, unfolded(name), false)
	s.encoded(pointer, name)
}

// encoded examines the addresses in the encoded parts of a text.
func (s *search) encoded(pointer, value string) {
	plain, cut := decoded(value)
	if plain != "" {
		s.addresses(pointer, plain, fold(plain), false)
		s.addresses(pointer, plain, unfolded(plain), false)
	}
	if cut {
		s.stop()
	}
}

// text examines a string: the addresses in it, and all of it if it is short.
func (s *search) text(pointer, value string) {
	folded := strings.TrimSpace(fold(value))
	if folded == "" {
		return
	}
	isURL := isURLName(pointer)
	if plain := unfolded(value); plain != "" {
		s.addresses(pointer, plain, plain, false)
	}
	switch {
	case countDigits(folded) < len(folded) || len(folded) > maxNumber:
		if isURL && strings.ContainsAny(folded, "\t\r\n") || isBroken(folded) {
			s.addresses(pointer, value, unbroken(folded), isURL)
		}
		if s.addresses(pointer, value, folded, isURL) {
			return
		}
		s.encoded(pointer, value)
		if plain := compactMail(folded); plain != "" {
			s.addresses(pointer, plain, plain, false)
		}
	case isURL && isNumericIPv4(folded):
		s.numericHost(pointer, value)
		return
	}
	tokens, more := tokensOf(folded, maxNameTokens)
	switch {
	case s.isDestination(pointer) && (len(tokens) == 0 || folded != strings.TrimSpace(strings.ToLower(value))):
		s.report(Argument{Pointer: pointer, Value: value, Kind: KindName}, origin{}) // not plain words
	case more || len(folded) > maxNameBytes || strings.ContainsAny(folded, "\n"):
		s.longText(pointer, value, folded)
	case len(tokens) == 0: // only punctuation
	default:
		s.shortText(pointer, value, folded, tokens)
	}
}

// longText examines a long text. Its words prove nothing.
func (s *search) longText(pointer, value, folded string) {
	tokens, _ := tokensOf(folded, 4*maxNameTokens)
	a := Argument{Pointer: pointer, Value: value, Kind: KindText}
	of, _ := s.findAny(pointer, func(x *index) (origin, bool) { return x.find(tokens, false, &s.budget) })
	s.report(a, of)
}

// shortText examines a short text.
func (s *search) shortText(pointer, value, folded string, tokens []token) {
	if d, ok := s.reader.dateOf(folded, tokens); ok {
		s.date(pointer, value, d)
		return
	}
	if n, ok := exactNumber(folded); ok {
		s.numeral(pointer, value, n, len(folded) >= minAccount)
		return
	}
	a := Argument{Pointer: pointer, Value: value, Kind: KindName, Weak: weakName(folded, tokens)}
	of, ok := s.findTrusted(pointer, func(x *index) (origin, bool) { return x.find(tokens, true, &s.budget) })
	if number := groupedNumber(folded); number != "" && !ok {
		s.account(a, number)
		return
	}
	if !ok {
		if of = s.field(&a, folded); !a.Field {
			of, ok = s.outside.find(tokens, false, &s.budget)
		}
	}
	s.classify(a, of, ok || a.Field)
}

// field reports in a whether a value was a field from outside, and in which record.
func (s *search) field(a *Argument, value string) origin {
	var f field
	f, a.Field = s.outside.fields[value]
	a.Record = f.record
	return f.origin
}

// classify reports where a value that is no address was found.
func (s *search) classify(a Argument, of origin, found bool) {
	if !found && (s.budget < 0 || s.outside.cut) {
		of = origin{source: Outside}
	}
	if !of.source.trusted() && !s.isDestination(a.Pointer) && s.listed(a.Pointer, a.Value) {
		return
	}
	s.report(a, of)
}

// weakName reports whether the occurrence of a name proves nothing.
func weakName(folded string, tokens []token) bool {
	if len(tokens) > 1 {
		return false
	}
	return tokens[0].end-tokens[0].start <= 2 || strings.Contains(commonWords, " "+folded+" ")
}

// commonWords are common values of tools that also occur in any longer text.
const commonWords = " true false yes no on off all any none null auto default low medium high left right up down " +
	"start stop open close new old first last next day week month year today tomorrow now text html json csv xml " +
	"plain red green blue white black read write user main test "

// date examines a day, with or without a time.
func (s *search) date(pointer, value string, d date) {
	a := Argument{Pointer: pointer, Value: value, Kind: KindDate}
	of, ok := s.findTrusted(pointer, func(x *index) (origin, bool) { return findDate(x.dates, d) })
	if !ok {
		if of, a.Field = findDate(s.outside.fieldDates, d); !a.Field {
			of, ok = findDate(s.outside.dates, d)
		}
	}
	s.classify(a, of, ok || a.Field)
}

// findDate finds a date. A date without a year matches that day of any year.
func findDate(dates map[date]origin, d date) (origin, bool) {
	of, ok := dates[d]
	if !ok {
		of, ok = dates[date{0, d.month, d.day}]
	}
	return of, ok
}

// number examines a JSON number. A whole number may be an account or a phone number, like a text.
func (s *search) number(pointer, value string) {
	n, ok := exactNumber(value)
	switch {
	case !ok:
	case isURLName(pointer) && isNumericIPv4(n):
		s.numericHost(pointer, n)
	default:
		s.numeral(pointer, n, n, !strings.Contains(n, ".") && countDigits(n) >= minAccount)
	}
}

// numericHost examines a number in the place of a URL or host: an IPv4 address.
func (s *search) numericHost(pointer, value string) {
	of, _ := s.findTrusted(pointer, func(x *index) (origin, bool) {
		of, ok := x.addresses[value]
		if !ok {
			of, ok = x.numbers[value]
		}
		return of, ok
	})
	s.report(Argument{Pointer: pointer, Value: value, Kind: KindURL}, of)
}

// account examines an account or phone number that no trusted source has written the same way.
func (s *search) account(a Argument, number string) {
	a.Kind, a.Weak = KindAddress, false
	of, ok := s.findAny(a.Pointer, named(number))
	s.classify(a, of, ok)
}

// numeral examines a number in its shortest form. A long number counts as an address, as it may be an account, unless
// it is a fraction that was a field from outside.
func (s *search) numeral(pointer, value, n string, long bool) {
	a := Argument{Pointer: pointer, Value: value, Kind: KindNumber, Weak: countDigits(n) <= 2}
	of, ok := s.findTrusted(pointer, func(x *index) (origin, bool) {
		of, ok := x.numbers[n]
		if !ok && long {
			of, ok = x.addresses[value]
		}
		return of, ok
	})
	if ok {
		s.report(a, of)
		return
	}
	of = s.field(&a, "#"+n)
	if long && !(a.Field && strings.Contains(n, ".")) {
		a.Kind = KindAddress
	}
	if a.Field {
		s.classify(a, of, true)
		return
	}
	if long {
		of, ok = s.outside.addresses[value]
	}
	for _, spelling := range spellings(n) {
		if !ok {
			tokens, _ := tokensOf(spelling, maxNameTokens)
			of, ok = s.outside.find(tokens, false, &s.budget)
		}
	}
	s.classify(a, of, ok)
}

// spellings returns how running text may write a number: unchanged, in groups of three digits, with two decimals.
func spellings(n string) []string {
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(n, "-"), ".")
	tail := []string{"", ".00"}
	switch len(fraction) {
	case 0:
	case 1:
		tail = []string{"." + fraction, "." + fraction + "0"}
	default:
		tail = []string{"." + fraction}
	}
	var grouped string
	for len(whole) > 3 && len(grouped) < 24 {
		whole, grouped = whole[:len(whole)-3], ","+whole[len(whole)-3:]+grouped
	}
	out := []string{}
	for _, t := range tail {
		out = append(out, whole+strings.ReplaceAll(grouped, ",", "")+t)
		if grouped != "" {
			out = append(out, whole+grouped+t)
		}
	}
	return out
}

// listed reports whether the schema lists a value among the allowed values of an argument. Each schema that it looks at
// takes one from the budget; with a negative one it is false.
func (s *search) listed(pointer, value string) bool {
	if s.parsed == nil {
		if len(s.call.Schema) == 0 || json.Unmarshal(s.call.Schema, &s.parsed) != nil {
			s.parsed = false
		}
	}
	nodes := []any{s.parsed}
	for step := range jsontext.Pointer(pointer).Tokens() {
		var next []any // the schemas of the member, or of the elements
		for _, node := range s.alternatives(nodes) {
			m, _ := node.(map[string]any)
			properties, _ := m["properties"].(map[string]any)
			for _, n := range []any{properties[step], m["items"]} {
				if n != nil {
					next = append(next, n)
				}
			}
		}
		nodes = next
	}
	for _, node := range s.alternatives(nodes) {
		m, _ := node.(map[string]any)
		values, _ := m["enum"].([]any)
		for _, v := range append(values, m["const"]) {
			f, isNumber := v.(float64)
			if v == any(value) || isNumber && strconv.FormatFloat(f, 'f', -1, 64) == value {
				return true
			}
		}
	}
	return false
}

// maxComposed is how many levels of the schemas that others are composed of are looked at.
const maxComposed = 4

// alternatives returns these schemas, and those they are composed of if these are few. It returns none if there is no
// budget for them.
func (s *search) alternatives(nodes []any) []any {
	all := nodes
	for depth := 0; depth < maxComposed && len(nodes) > 0 && len(all) < 100; depth++ {
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
	if s.budget -= len(all); s.budget < 0 {
		return nil
	}
	return all
}
