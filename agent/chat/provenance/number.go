package provenance

import (
	"strconv"
	"strings"
)

// maxNumber is how long a number may be written.
const maxNumber = 40

// canonNumbers returns what a written number can mean, each in one form. "1,000.50" is 1000.5; "1,000" is 1000, or 1 as
// some countries write.
func canonNumbers(s string) []string {
	s = strings.Trim(s, "+")
	if s == "" || len(s) > maxNumber {
		return nil
	}
	var out []string
	for _, point := range []byte{'.', ','} {
		comma := byte('.' + ',' - point)
		if n, ok := canonNumber(s, point, comma); ok && (len(out) == 0 || out[0] != n) {
			out = append(out, n)
		}
	}
	return out
}

// canonNumber reads a number with this decimal point, whose groups of three digits may be separated by commas.
func canonNumber(s string, point, comma byte) (string, bool) {
	whole, fraction, _ := strings.Cut(s, string(point))
	if strings.IndexByte(fraction, point) >= 0 || strings.IndexByte(fraction, comma) >= 0 {
		return "", false
	}
	groups := strings.Split(whole, string(comma))
	for i, g := range groups[1:] {
		if len(g) != 3 || i == 0 && len(groups[0]) > 3 {
			return "", false
		}
	}
	return exactNumber(strings.Join(groups, "") + "." + fraction)
}

// exactNumber returns a number as JSON has it in its shortest form.
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
	for _, part := range []string{whole, fraction} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return "", false
			}
		}
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

// eachNumber calls visit with every number in folded text. With whole, the number is not a part of something longer,
// such as a date or a time.
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

// bound reports whether the character beside a digit makes one word of it and what follows.
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

// Lengths of the numbers of accounts, cards and phones, in characters without spaces.
const (
	minAccount = 9
	minIBAN    = 15
	maxIBAN    = 34
)

// accounts calls visit with the numbers of accounts, cards and phones in folded text whose tokens are given.
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

// gap returns what stands between two tokens.
func gap(s string, a, b token) string { return s[a.end:b.start] }

// ibanAt returns the IBAN that begins with the first word, and how many words it has: two letters, two digits, and then
// groups of letters and digits.
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

// phoneAt returns the number that begins with the first word, and how many words it has.
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
		g, next := gap(s, words[n-1], words[n]), words[n].text(s)
		if !words[n].digits || len(g) > 2 || strings.Trim(g, " -.()/") != "" {
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
