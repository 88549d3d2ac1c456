package provenance

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/farhand/farhand/registry/textsafe"
)

// maxMarks is how many invisible characters may stand on either side of a word, as marks of direction do.
const maxMarks = 2

// unfolded returns the words of a text in which fold hides a difference, without hiding it: invisible characters stay,
// and so do letters and digits in another form. Host names ignore such differences, paths and mailboxes do not, so that
// a path could carry any text. It is empty if there are none.
func unfolded(text string) string {
	if textsafe.IsASCII(text) {
		return ""
	}
	var out strings.Builder
	for word := range strings.FieldsSeq(text) {
		if textsafe.IsASCII(word) {
			continue
		}
		word = withoutMarks(word)
		folded := fold(word)
		if folded == strings.ToLower(word) {
			continue
		}
		if plain := withHidden(word); plain != folded {
			out.WriteString(plain + "\n")
		}
	}
	return out.String()
}

// withHidden returns a word in lower case, and only what is punctuation in plain form.
func withHidden(word string) string {
	var out strings.Builder
	for _, r := range word {
		plain := fold(string(r))
		if plain == "" || plain == " " || strings.ContainsFunc(plain, isWord) {
			plain = string(unicode.ToLower(r))
		}
		out.WriteString(plain)
	}
	return norm.NFC.String(out.String())
}

// withoutMarks returns a word without the invisible characters at its ends, if these are few.
func withoutMarks(word string) string {
	begin, end := 0, len(word)
	for range maxMarks {
		if r, n := utf8.DecodeRuneInString(word[begin:end]); unicode.Is(unicode.Cf, r) {
			begin += n
		}
		if r, n := utf8.DecodeLastRuneInString(word[begin:end]); unicode.Is(unicode.Cf, r) {
			end -= n
		}
	}
	return word[begin:end]
}
