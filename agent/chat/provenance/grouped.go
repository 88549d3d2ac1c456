package provenance

import (
	"strings"
	"unicode"

	"github.com/farhand/farhand/registry/textsafe"
)

// groupedNumber returns the digits of a text that is only a long number in groups, such as a phone number; else "".
func groupedNumber(folded string) string {
	plain := strings.ReplaceAll(plainGroups(strings.TrimPrefix(folded, "tel:")), "_", "-")
	if strings.Trim(plain, "0123456789 -–.()/+") != "" {
		return ""
	}
	number := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, plain)
	if len(number) < minAccount {
		return ""
	}
	return number
}

// plainGroups returns a text with the digits of all scripts as 0 to 9, with hyphens and middle dots as '-', and with
// longer dashes as '–': they also stand for a range of numbers.
func plainGroups(s string) string {
	if textsafe.IsASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\u2010', r == '\u2011', r == '·', r == '•':
			return '-'
		case unicode.Is(unicode.Pd, r), r == '\u2212':
			return '–'
		case unicode.Is(unicode.Nd, r):
			return digitOf(r)
		}
		return r
	}, s)
}

// digitOf returns the plain form of a decimal digit. Unicode has each script's digits together, in order.
func digitOf(r rune) rune {
	for _, of := range unicode.Nd.R16 {
		if r >= rune(of.Lo) && r <= rune(of.Hi) {
			return '0' + (r-rune(of.Lo))%10
		}
	}
	for _, of := range unicode.Nd.R32 {
		if r >= rune(of.Lo) && r <= rune(of.Hi) {
			return '0' + (r-rune(of.Lo))%10
		}
	}
	return r
}
