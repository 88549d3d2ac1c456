package schema

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parsing alone can be slow: a class of Unicode is a list of hundreds of ranges, and in a pattern that does not look at
// case every character of a range is folded by itself. Both are counted over all patterns of a schema, before one is
// parsed.
const (
	maxUnicodeClasses = 64     // as \pL
	maxFolded         = 50_000 // characters in ranges where case does not count; Chinese has twenty thousand
)

// parseCost is what makes parsing patterns slow.
type parseCost struct {
	unicodeClasses int
	folded         int // characters
}

func (c *parseCost) add(pattern string) error {
	c.unicodeClasses += strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`)
	if c.unicodeClasses > maxUnicodeClasses {
		return beyond(`the patterns of a schema may have at most %d classes like \pL`, maxUnicodeClasses)
	}
	if !ignoresCase(pattern) {
		return nil
	}
	for i := range len(pattern) {
		if pattern[i] == '-' {
			c.folded += max(0, int(runeAfter(pattern[i+1:])-runeBefore(pattern[:i])))
		}
	}
	if c.folded > maxFolded {
		return beyond("the ranges in the patterns of a schema may have at most %d characters under (?i)", maxFolded)
	}
	return nil
}

// ignoresCase reports whether a flag i may be set anywhere in a pattern.
func ignoresCase(pattern string) bool {
	for {
		_, rest, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imsU-"))]
		if strings.Contains(flags, "i") {
			return true
		}
		pattern = rest
	}
}

// runeAfter returns the character that text begins with; what is below utf8.RuneSelf need not be exact.
func runeAfter(text string) rune {
	if hex, ok := strings.CutPrefix(text, `\x{`); ok {
		hex, _, _ = strings.Cut(hex, "}")
		return hexRune(hex)
	}
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

// runeBefore returns the character that text ends with.
func runeBefore(text string) rune {
	if i := strings.LastIndex(text, `\x{`); i >= 0 && strings.HasSuffix(text, "}") {
		return hexRune(text[i+3 : len(text)-1])
	}
	r, _ := utf8.DecodeLastRuneInString(text)
	return r
}

func hexRune(hex string) rune {
	n, err := strconv.ParseInt(hex, 16, 32)
	if err != nil {
		return utf8.MaxRune
	}
	return rune(n)
}
