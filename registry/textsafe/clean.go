// Package textsafe makes untrusted text safe to read for people and models. Clean removes what a reader would not see
// from a text, and CleanSchema from the free text of a JSON Schema. Hides reports whether there is any of it. Skeletons
// and OneScript detect names that look like others. The character classes come from Unicode's tables;
// docs/decisions/0017-text-of-strangers.md says what stays and why.
package textsafe

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
)

// Clean returns readable text: valid UTF-8, without control characters except line feeds and tabs, without terminal
// escapes, and without invisible characters, unless a word or an emoji is written with them. Other line ends become
// line feeds. Clean is idempotent.
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
			if !belongs(before, r, first(s[i+size:])) {
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

// Expose replaces every character that a reader would not see, or that a terminal would act on, with the replacement
// character, one for one. Use it for terminals and logs, where the presence of such characters should show.
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
			if !belongs(before, r, first(s[i+utf8.RuneLen(r):])) {
				r = utf8.RuneError
			}
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// Line is Clean for single-line text: a name, a label, an entry of a log.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, Clean(s))
}

// Hides reports whether Clean would remove or replace something in a text. A carriage return alone does not count.
func Hides(s string) bool {
	if isPlain(s) {
		return false
	}
	s = strings.ReplaceAll(s, "\r", "")
	return Clean(s) != s
}

// first returns the first character of s, utf8.RuneError if s is empty.
func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// isPlain reports whether text is only printable ASCII, line feeds and tabs: the common case.
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

// CleanJSON cleans the strings of a JSON text, including the names of members, and keeps the rest byte for byte. It
// returns false if two names of one object are then equal. text must be valid.
func CleanJSON(text []byte) (clean []byte, ok bool) {
	if !maybeUnseen(text) {
		return text, true
	}
	out, renamed := make([]byte, 0, len(text)), false
	for len(text) > 0 {
		at := bytes.IndexByte(text, '"')
		if at < 0 {
			break
		}
		out, text = append(out, text[:at]...), text[at:]
		quoted := text[:quotedLen(text)]
		text = text[len(quoted):]
		said := strictjson.Text(quoted)
		seen := Clean(said)
		if seen == said {
			out = append(out, quoted...)
			continue
		}
		out = strictjson.AppendString(out, seen)
		renamed = renamed || bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(":"))
	}
	out = append(out, text...)
	return out, !renamed || strictjson.Valid(out)
}

// quotedLen returns the length of the JSON string at the start of a text.
func quotedLen(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

const (
	escape        = 0x1b
	oneByteEscape = '\u009b' // escape and bracket in one character
	bell          = 0x07

	lineSeparator      = '\u2028'
	paragraphSeparator = '\u2029'
)

// escapeLen returns the length of the terminal escape at the start of s. For an incomplete escape it returns the length
// of the introducer.
func escapeLen(s string) int {
	if len(s) < 2 {
		return 1
	}
	switch c := s[1]; {
	case c == '[':
		return 2 + controlLen(s[2:])
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return 2 + stringLen(s[2:])
	case c >= 0x20 && c < 0x30:
		i := 1
		for i < len(s) && s[i] >= 0x20 && s[i] < 0x30 {
			i++
		}
		if i < len(s) && s[i] >= 0x30 && s[i] < 0x7f {
			i++
		}
		return i
	case c >= 0x30 && c < 0x7f:
		return 2
	default:
		return 1
	}
}

// controlLen returns the length of the parameters and the final character of a control sequence.
func controlLen(s string) int {
	i := 0
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x40 {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] < 0x7f {
		i++
	}
	return i
}

// stringLen returns the length of a control string with its terminator. It returns zero without a terminator, so that
// an unterminated string is shown, not removed. It stops at any other control character, so a text full of introducers
// is still read only twice.
func stringLen(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case c == bell:
			return i + 1
		case c == escape && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case c < 0x20 && c != '\t':
			return 0
		}
	}
	return 0
}
