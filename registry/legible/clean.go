package legible

import (
	"strings"
	"unicode/utf8"
)

// Clean returns text as a reader may see it: valid UTF-8, without controls but line feeds and tabs, without terminal
// escapes, and without characters that are not seen, unless they belong to how a word or an emoji is written. Other
// line ends become line feeds. What is clean stays the same, so cleaning twice is cleaning once.
func Clean(s string) string {
	if isPlain(s) {
		return s
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	var b strings.Builder
	b.Grow(len(s))
	before := rune(-1) // the last character that was kept
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == escape:
			i += escapeLen(s[i:])
			continue
		case r == oneByteEscape:
			i += size + controlLen(s[i+size:])
			continue
		case r == '\r' && strings.HasPrefix(s[i+size:], "\n"):
			i += size
			continue
		case r == '\r', r == lineSeparator, r == paragraphSeparator:
			r = '\n'
		case r == '\n' || r == '\t':
		case isUnseen(r):
			if !belongs(before, r, next(s[i+size:])) {
				i += size
				continue
			}
		}
		b.WriteRune(r)
		before = r
		i += size
	}
	return b.String()
}

// Expose returns text with the replacement character in place of everything that a reader would not see, or a terminal
// would act on, one for one: for terminals and logs, where it is worth seeing that there was something.
func Expose(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	before := rune(-1)
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t':
		case isUnseen(r):
			if !belongs(before, r, next(s[i+utf8.RuneLen(r):])) {
				r = utf8.RuneError
			}
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// Line is Clean for what stands in one line: a name, a label, an entry of a log.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Clean(s))
}

// Hides reports whether Clean would take something out of text, or put something else in its place. A carriage return
// hides nothing.
func Hides(s string) bool {
	if isPlain(s) {
		return false
	}
	s = strings.ReplaceAll(s, "\r", "")
	return Clean(s) != s
}

// next returns the first character of s, -1 if there is none.
func next(s string) rune {
	for _, r := range s {
		return r
	}
	return -1
}

// isPlain reports whether text is printable ASCII, line feeds and tabs, as almost all is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// IsASCII reports whether text is ASCII.
func IsASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
