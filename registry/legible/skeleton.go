package legible

import (
	"slices"
	"strings"
	"unicode"

	"go.mau.fi/util/confusable"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// Skeletons returns what a name looks like, by the confusables of Unicode (UTS #39): two names that have one of their
// skeletons in common are taken for one another, whatever the case of their letters. A skeleton is for comparing only.
func Skeletons(name string) []string {
	name = norm.NFKC.String(name)
	// A letter may look like another only in the case it is written in.
	return slices.Compact([]string{skeleton(fold(name)), skeleton(name)})
}

// AnySkeletons also returns what a name looks like in capitals, in which l, I and 1 are one. It is for names that must
// not be imitated at all.
func AnySkeletons(name string) []string {
	upper := cases.Upper(language.Und)
	return append(Skeletons(name), skeleton(upper.String(norm.NFKC.String(name))))
}

// skeleton is the skeleton of UTS #39, without regard to case. Marks are part of it: ü is not u.
func skeleton(s string) string { return fold(confusable.Skeleton(s)) }

func fold(s string) string {
	f := cases.Fold()
	return f.String(s)
}

// Plain returns the letter, digit or sign of ASCII that a character looks like, in lower case and without marks; it may
// be more than one. What looks like none is returned as it is.
func Plain(r rune) string {
	upper := cases.Upper(language.Und)
	for _, written := range []string{string(r), upper.String(string(r))} {
		var b strings.Builder
		for _, c := range skeleton(norm.NFKD.String(written)) {
			if !unicode.IsMark(c) {
				b.WriteRune(c)
			}
		}
		if plain := b.String(); plain != "" && isPlain(plain) {
			return plain
		}
	}
	return string(r)
}
