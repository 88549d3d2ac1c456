package provenance

import "strings"

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
