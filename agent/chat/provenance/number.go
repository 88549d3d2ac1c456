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
