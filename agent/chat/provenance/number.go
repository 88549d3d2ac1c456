package provenance

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNumber is the maximum length of a written number, in bytes.
const maxNumber = 40

// canonNumbers returns the possible meanings of a written number: "1,000" is 1000, or 1 with a decimal comma.
func canonNumbers(s string) []string {
	s = strings.Trim(s, "+")
	if s == "" || len(s) > maxNumber {
		return nil
	}
	var out []string
	for _, signs := range []string{".,", ",."} { // decimal point, separator of groups
		if n, ok := canonNumber(s, signs[:1], signs[1:]); ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// canonNumber parses a number with this decimal point and optional separators between groups of three digits.
func canonNumber(s, point, comma string) (string, bool) {
	whole, fraction, _ := strings.Cut(s, point)
	if strings.ContainsAny(fraction, ".,") {
		return "", false
	}
	groups := strings.Split(whole, comma)
	for i, g := range groups[1:] {
		if len(g) != 3 || i == 0 && len(groups[0]) > 3 {
			return "", false
		}
	}
	return exactNumber(strings.Join(groups, "") + "." + fraction)
}

// exactNumber returns a JSON number in its shortest form.
func exactNumber(s string) (string, bool) {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	if strings.ContainsAny(s, "eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f > 1e21 {
			return "", false
		}
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if countDigits(whole) < len(whole) || countDigits(fraction) < len(fraction) {
		return "", false
	}
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole, true
}

// eachNumber calls visit with every number in folded text. whole is false in something longer, such as a date.
func eachNumber(s string, visit func(text string, whole bool)) {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		end := i
		for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == '.' || s[end] == ',') {
			end++
		}
		text := strings.TrimRight(s[i:end], ".,")
		visit(text, !bound(s, i, -1) && !bound(s, i+len(text)-1, 1))
		i = end - 1
	}
}

// bound reports whether the character next to a digit connects it to a longer word.
func bound(s string, at, step int) bool {
	next := func() byte {
		if at += step; at < 0 || at >= len(s) {
			return ' '
		}
		return s[at]
	}
	b := next()
	if strings.IndexByte(joiners+",", b) >= 0 {
		b = next()
	} else if step > 0 && b >= 'a' && b <= 'z' {
		return false // a unit
	}
	return b < 0x80 && isWord(rune(b))
}

// Lengths of account, card and phone numbers, in characters without spaces.
const (
	minAccount = 9
	minIBAN    = 15
	maxIBAN    = 34
)

// accounts calls visit with the account, card and phone numbers in folded text. tokens are the tokens of the text.
func accounts(s string, tokens []token, visit func(address) bool) {
	for i := 0; i < len(tokens); {
		number, n := "", 0
		if tokens[i].digits {
			number, n = phoneAt(s, tokens[i:])
		} else if tokens[i].end-tokens[i].start >= 4 {
			number, n = ibanAt(s, tokens[i:])
		}
		if n > 0 && !visit(address{text: number, kind: KindAddress}) {
			return
		}
		i += max(n, 1)
	}
}

func countDigits(s string) (n int) {
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n
}

func gap(s string, a, b token) string { return s[a.end:b.start] }

// ibanAt returns the IBAN (two letters, two digits, groups) that begins with the first word, and its number of words.
func ibanAt(s string, words []token) (string, int) {
	w := words[0].text(s)
	if len(w) < 4 || len(w) > maxIBAN || countDigits(w[:2]) != 0 || countDigits(w[2:4]) != 2 {
		return "", 0
	}
	n, text := 1, w
	for len(w) == 4 && n < len(words) {
		next := words[n].text(s)
		if g := gap(s, words[n-1], words[n]); g != " " && g != "-" {
			break
		}
		if len(next) > 4 || len(text)+len(next) > maxIBAN || n > 1 && countDigits(next) == 0 {
			break
		}
		text += next
		n++
	}
	if len(text) < minIBAN || 2*countDigits(text) < len(text) || strings.Contains(text, "_") {
		return "", 0
	}
	return text, n
}

// phoneAt returns the number that begins with the first word, and its number of words.
func phoneAt(s string, words []token) (string, int) {
	plus := words[0].start > 0 && s[words[0].start-1] == '+'
	if words[0].joined && !plus {
		return "", 0
	}
	dated := false
	numericDate(s, words, func(date) { dated = true })
	if dated {
		return "", 0
	}
	n, text, dashes := 1, words[0].text(s), true
	fours := len(text) == 4
	for n < len(words) && len(text) < 20 {
		g, next := plainGroups(gap(s, words[n-1], words[n])), words[n].text(s)
		if !words[n].digits || utf8.RuneCountInString(g) > 2 || strings.Trim(g, " -–.()/") != "" {
			break
		}
		fours, dashes = fours && len(next) == 4, dashes && g == "-"
		text += next
		n++
	}
	ends := n == len(words) || !words[n].joined
	switch {
	case len(text) < minAccount || !ends:
		return "", 0
	case n == 1, plus, fours, dashes, len(text) == 10 && n == 3:
		return text, n
	}
	return "", 0
}

// date is a calendar day. Year 0: the text has no year.
type date struct{ year, month, day int }

func (d date) valid() bool {
	return d.month >= 1 && d.month <= 12 && d.day >= 1 && d.day <= 31 &&
		(d.year == 0 || d.year >= 1900 && d.year < 2200)
}

// monthNames are the names of the months in English, German, French and Spanish, with their abbreviations.
var monthNames = [12]string{
	"january jan januar janvier enero ene", "february feb februar février fév febrero",
	"march mar märz mär mars marzo", "april apr avril avr abril abr", "may mai mayo", "june jun juni juin junio",
	"july jul juli juillet julio", "august aug août agosto", "september sep sept septembre septiembre",
	"october oct oktober okt octobre octubre", "november nov novembre noviembre",
	"december dec dezember dez décembre déc diciembre dic",
}

// monthsByHash returns the numbers of the months, by the hash of their name as a token.
func monthsByHash() map[uint64]int {
	months := make(map[uint64]int)
	for i, names := range monthNames {
		tokens, _ := tokensOf(names, 12)
		for _, t := range tokens {
			months[t.hash] = i + 1
		}
	}
	return months
}

// dayOf parses the number of a day, such as 3, 03 and 3rd.
func dayOf(w string) int {
	for _, end := range []string{"st", "nd", "rd", "th"} {
		if s, ok := strings.CutSuffix(w, end); ok {
			w = s
			break
		}
	}
	return digits(w, 1, 2)
}

func yearOf(w string) int {
	if n := digits(w, 4, 4); n >= 1900 && n < 2200 {
		return n
	}
	return 0
}

// digits parses a number of least to most digits. It returns 0 if the text is no such number.
func digits(w string, least, most int) int {
	if len(w) < least || len(w) > most {
		return 0
	}
	n, err := strconv.ParseUint(w, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// dates calls visit with every date in folded text. tokens are the tokens of the text.
func (r *reader) dates(s string, tokens []token, visit func(date)) {
	for i, t := range tokens {
		if t.digits || s[t.start] >= '0' && s[t.start] <= '9' {
			numericDate(s, tokens[i:], visit)
		} else if t.end-t.start >= 3 && t.end-t.start <= 12 {
			if month := r.months[t.hash]; month > 0 {
				namedDates(s, tokens, i, month, visit)
			}
		}
	}
}

// numericDate finds a date that begins with the first word: 2024-05-19, 19.05.2024 and 05/19/2024.
func numericDate(s string, tokens []token, visit func(date)) {
	if len(tokens) < 3 || !tokens[1].joined || !tokens[2].joined {
		return
	}
	a, b, c := tokens[0].text(s), tokens[1].text(s), tokens[2].text(s)
	if t := strings.IndexByte(c, 't'); t > 0 { // 2024-05-19T12:00
		c = c[:t]
	}
	emit := func(year, month, day int) {
		if d := (date{year, month, day}); year > 0 && d.valid() {
			visit(d)
		}
	}
	emit(yearOf(a), digits(b, 1, 2), digits(c, 1, 2))
	emit(yearOf(c), digits(b, 1, 2), digits(a, 1, 2))
	emit(yearOf(c), digits(a, 1, 2), digits(b, 1, 2))
}

// namedDates finds the dates around the name of a month: "May 1st, 2024", "the 1st of May", "May 1st to 5th".
func namedDates(s string, tokens []token, i, month int, visit func(date)) {
	at := func(n int) string {
		if n < 0 || n >= len(tokens) {
			return ""
		}
		return tokens[n].text(s)
	}
	emit := func(day, year int) {
		if v := (date{year, month, day}); v.valid() {
			visit(v)
		}
	}
	fill := func(n, step int) int { // skips words without meaning
		for range 2 {
			switch at(n) {
			case "the", "of", "de", "den", "and", "to", "until", "till", "through", "bis", "und", "y", "et", "au", "al":
				n += step
			}
		}
		return n
	}
	if right := fill(i+1, 1); dayOf(at(right)) > 0 {
		second := fill(right+1, 1)
		year := yearOf(at(right + 1))
		if dayOf(at(second)) > 0 && year == 0 {
			year = yearOf(at(second + 1))
		}
		emit(dayOf(at(second)), year)
		emit(dayOf(at(right)), year)
	}
	if left := fill(i-1, -1); dayOf(at(left)) > 0 {
		year := yearOf(at(i + 1))
		emit(dayOf(at(left)), year)
		emit(dayOf(at(fill(left-1, -1))), year)
	}
}
