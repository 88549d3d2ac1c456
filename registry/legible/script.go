package legible

import (
	"unicode"
	"unicode/utf8"
)

// mixed are the scripts that are written together (UTS #39, "highly restrictive"), each row of them with Latin.
var mixed = [][]*unicode.RangeTable{
	{unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana},
	{unicode.Latin, unicode.Han, unicode.Bopomofo},
	{unicode.Latin, unicode.Han, unicode.Hangul},
}

// OneScript reports whether all letters of a word are of one script, or of scripts that are written together: a word of
// Latin letters and a Cyrillic one is meant to be taken for another word.
func OneScript(word string) bool {
	var letters []rune
	for _, r := range word {
		if r >= utf8.RuneSelf && !unicode.In(r, unicode.Common, unicode.Inherited) ||
			r < utf8.RuneSelf && unicode.IsLetter(r) {
			letters = append(letters, r)
		}
	}
	if len(letters) == 0 {
		return true
	}
	for _, scripts := range mixed {
		if allIn(letters, scripts...) {
			return true
		}
	}
	for _, script := range unicode.Scripts {
		if unicode.Is(script, letters[0]) {
			return allIn(letters, script)
		}
	}
	return false
}

func allIn(letters []rune, scripts ...*unicode.RangeTable) bool {
	for _, r := range letters {
		if !unicode.In(r, scripts...) {
			return false
		}
	}
	return true
}
