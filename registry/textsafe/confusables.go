package textsafe

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// confusablesFile has a line for each character of Unicode's confusables.txt (UTS #39, Unicode License v3): the
// character, and the characters it looks like, as hexadecimal numbers.
//
//go:embed confusables.txt
var confusablesFile string

// confusables maps each character to what it looks like. The file is read when it is first needed, which takes a
// millisecond.
var confusables = sync.OnceValue(func() map[rune]string {
	table := make(map[rune]string, strings.Count(confusablesFile, "\n"))
	for line := range strings.Lines(confusablesFile) {
		var characters []rune
		for _, field := range strings.Fields(line) {
			// The file is a part of the program, and a test reads all of it.
			r, _ := strconv.ParseUint(field, 16, 32)
			characters = append(characters, rune(r))
		}
		table[characters[0]] = string(characters[1:])
	}
	return table
})

// exactSkeleton is the skeleton of UTS #39: each visible character is replaced by what it looks like.
func exactSkeleton(s string) string {
	table := confusables()
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range norm.NFD.String(s) {
		if !unicode.IsGraphic(r) && r != unicode.ReplacementChar {
			continue
		}
		if alike, ok := table[r]; ok {
			b.WriteString(alike)
		} else {
			b.WriteRune(r)
		}
	}
	return norm.NFD.String(b.String())
}
