package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/registry/legible"
)

// maxToolName is how many characters the name of a tool may have.
const maxToolName = 64

// separators stand between the words of a name.
const separators = "_.-"

// ValidToolName reports whether a tool may carry this name at all; policy may still refuse it.
func ValidToolName(name string) bool { return checkToolName(name) == nil }

// checkToolName returns why no tool may carry a name, nil if one may. The message is the reason told to the device.
func checkToolName(name string) error {
	if plainToolName(name) { // almost all names are plain, and names of calls are checked, too
		return nil
	}
	fail := func(reason string) error { return Errorf(CodeInvalidRequest, "name: %s", reason) }
	if name == "" || utf8.RuneCountInString(name) > maxToolName {
		return fail("must have 1 to 64 characters")
	}
	if !utf8.ValidString(name) {
		return fail("must be valid UTF-8")
	}
	if legible.Hides(name) {
		return fail("control and invisible characters are not allowed")
	}
	for i, r := range name {
		first := unicode.IsLetter(r) || unicode.Is(unicode.Nd, r) || r == '_'
		if !first && (i == 0 || !unicode.IsMark(r) && !strings.ContainsRune(separators, r)) {
			return fail("must be letters, digits, _, . and -, beginning with a letter, a digit or _")
		}
	}
	if !norm.NFC.IsNormalString(name) {
		return fail("must be in Unicode's normalization form NFC")
	}
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if !legible.OneScript(word) {
			return fail("the letters of one word must be of one script")
		}
	}
	return nil
}

// plainToolName reports whether a name is one of ASCII that is valid.
func plainToolName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxToolName
}
