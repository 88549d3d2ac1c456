package provenance

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of the work for one call.
const (
	maxSteps  = 1 << 20 // comparisons of tokens
	maxFound  = 256     // arguments that are told
	maxLeaves = 4096    // values that are looked at
	maxArgs   = 1 << 20 // bytes of values that are looked at
	maxShown  = 200     // bytes of a value that are told
)

// search looks for the values of one call.
type search struct {
	*Conversation
	budget int
	call   Call
	parsed any // the schema of the call

	leaves, bytes int
	found         []Argument
	cut           bool
}

// args looks at all values of the arguments.
func (s *search) args() {
	eachScalar(s.call.Args, func(pointer string, token jsontext.Token, key bool) bool {
		value := token.String()
		s.leaves++
		s.bytes += len(value)
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

// stop ends the search: what was not looked at counts as from outside.
func (s *search) stop() {
	if !s.cut {
		s.cut = true
		s.found = append(s.found, Argument{Kind: KindCut, Source: Outside})
	}
}

func (s *search) tell(a Argument, of origin) {
	if len(s.found) >= maxFound {
		s.stop()
		return
	}
	a.Source, a.Where = of.source, of.id
	a.Value, a.Destination = shorten(a.Value), s.isDestination(a.Pointer)
	s.found = append(s.found, a)
}

func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// key looks at a name of a member: only addresses matter in it, unless it says where something goes.
func (s *search) key(pointer, name string) {
	if s.isDestination(pointer[:strings.LastIndexByte(pointer, '/')]) {
		s.text(pointer, name)
		return
	}
	s.addresses(pointer, name, fold(name), false)
	s.encoded(pointer, name)
}

// encoded looks at the addresses in what stands encoded in a text.
func (s *search) encoded(pointer, value string) {
	if plain := decoded(value); plain != "" {
		s.addresses(pointer, plain, fold(plain), false)
	}
}

// text looks at a string: at the addresses in it, and at the whole of it if it is short.
func (s *search) text(pointer, value string) {
	folded := strings.TrimSpace(fold(value))
	if folded == "" {
		return
	}
	if countDigits(folded) < len(folded) || len(folded) > maxNumber { // else it is judged as a number
		if s.addresses(pointer, value, folded, isURLName(pointer)) {
			return
		}
		s.encoded(pointer, value)
	}
	tokens, more := tokensOf(folded, maxNameTokens)
	switch {
	case s.isDestination(pointer) && (len(tokens) == 0 || folded != strings.TrimSpace(strings.ToLower(value))):
		s.tell(Argument{Pointer: pointer, Value: value, Kind: KindName}, origin{source: Model}) // only looks like words
	case more || len(folded) > maxNameBytes || strings.ContainsAny(folded, "\n"):
		s.passage(pointer, value, folded)
	case len(tokens) == 0: // only signs
	default:
		s.name(pointer, value, folded, tokens)
	}
}

// passage looks at a long text. What it is made of is not evidence.
func (s *search) passage(pointer, value, folded string) {
	tokens, _ := tokensOf(folded, 4*maxNameTokens)
	a := Argument{Pointer: pointer, Value: value, Kind: KindText}
	of, ok := s.believe(pointer, func(x *index) (origin, bool) { return x.find(tokens, false, &s.budget) })
	if !ok {
		of, ok = s.outside.find(tokens, false, &s.budget)
	}
	if !ok {
		of = origin{source: Model}
	}
	s.tell(a, of)
}

// name looks at a short text.
func (s *search) name(pointer, value, folded string, tokens []token) {
	if d, ok := s.reader.dateOf(folded, tokens); ok {
		s.date(pointer, value, d)
		return
	}
	if n, ok := exactNumber(folded); ok {
		s.numeral(pointer, value, n, len(folded) >= minAccount)
		return
	}
	a := Argument{Pointer: pointer, Value: value, Kind: KindName, Weak: weakName(folded, tokens)}
	of, ok := s.believe(pointer, func(x *index) (origin, bool) { return x.find(tokens, true, &s.budget) })
	if number := dialled(folded); number != "" && !ok {
		s.account(a, number)
		return
	}
	if !ok {
		if of = s.field(&a, folded); !a.Field {
			of, ok = s.outside.find(tokens, false, &s.budget)
		}
	}
	s.conclude(a, of, ok || a.Field)
}

// field notes whether a value was a field from outside, and of which record.
func (s *search) field(a *Argument, value string) origin {
	var f field
	f, a.Field = s.outside.fields[value]
	a.Record = f.record
	return f.origin
}

// conclude tells where a value that is no address was found.
func (s *search) conclude(a Argument, of origin, found bool) {
	switch {
	case found:
	case s.budget < 0 || s.outside.cut:
		of = origin{source: Outside}
	default:
		of = origin{source: Model}
	}
	if !of.source.trusted() && !s.isDestination(a.Pointer) && s.listed(a.Pointer, a.Value) {
		return
	}
	s.tell(a, of)
}

// weakName reports whether finding a name somewhere means nothing.
func weakName(folded string, tokens []token) bool {
	if len(tokens) > 1 {
		return false
	}
	return tokens[0].end-tokens[0].start <= 2 || strings.Contains(commonWords, " "+folded+" ")
}

// commonWords are values that tools take and that stand in any longer text.
const commonWords = " true false yes no on off all any none null auto default low medium high left right up down " +
	"start stop open close new old first last next day week month year today tomorrow now text html json csv xml " +
	"plain red green blue white black read write user main test "

// date looks at a day, with a time or without.
func (s *search) date(pointer, value string, d date) {
	a := Argument{Pointer: pointer, Value: value, Kind: KindDate}
	of, ok := s.believe(pointer, func(x *index) (origin, bool) { return lookUpDate(x.dates, d) })
	if !ok {
		if of, a.Field = lookUpDate(s.outside.fieldDates, d); !a.Field {
			of, ok = lookUpDate(s.outside.dates, d)
		}
	}
	s.conclude(a, of, ok || a.Field)
}

// lookUpDate finds a date. One without a year is that day of any year.
func lookUpDate(dates map[date]origin, d date) (origin, bool) {
	of, ok := dates[d]
	if !ok {
		of, ok = dates[date{0, d.month, d.day}]
	}
	return of, ok
}

// number looks at a number of JSON. A whole one may be an account or a phone as well as a text may.
func (s *search) number(pointer, value string) {
	if n, ok := exactNumber(value); ok {
		s.numeral(pointer, n, n, !strings.Contains(n, ".") && countDigits(n) >= minAccount)
	}
}

// dialled returns the digits of a text that is nothing but a long number in groups, as people write those of phones
// and accounts; empty if it is none.
func dialled(folded string) string {
	if strings.Trim(folded, "0123456789 -.()/+") != "" {
		return ""
	}
	number := strings.NewReplacer(" ", "", "-", "", ".", "", "(", "", ")", "", "/", "", "+", "").Replace(folded)
	if len(number) < minAccount {
		return ""
	}
	return number
}

// account looks at the number of an account or a phone, which no trusted source has written so.
func (s *search) account(a Argument, number string) {
	a.Kind, a.Weak = KindAddress, false
	of, ok := s.believe(a.Pointer, named(number))
	if !ok {
		of, ok = s.outside.addresses[number]
	}
	s.conclude(a, of, ok)
}

// numeral looks at a number in its shortest form. A long one may be an account or a phone, so it counts as an address;
// with a fraction only where it is no reference to a record.
func (s *search) numeral(pointer, value, n string, long bool) {
	a := Argument{Pointer: pointer, Value: value, Kind: KindNumber, Weak: countDigits(n) <= 2}
	of, ok := s.believe(pointer, func(x *index) (origin, bool) {
		of, ok := x.numbers[n]
		if !ok && long {
			of, ok = x.addresses[value]
		}
		return of, ok
	})
	if ok {
		s.tell(a, of)
		return
	}
	of = s.field(&a, "#"+n)
	if long && !(a.Field && strings.Contains(n, ".")) {
		a.Kind = KindAddress
	}
	if a.Field {
		s.conclude(a, of, true)
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
	s.conclude(a, of, ok)
}

// spellings returns how running text may have a number: as it is, with groups of three digits, and with two digits
// behind the point.
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
