package textsafe

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// Skeletons returns the skeletons of a name by Unicode's confusables (UTS #39). Two names with a common skeleton look
// alike, whatever the case of their letters. Use skeletons only for comparison.
func Skeletons(name string) []string {
	name = norm.NFKC.String(name)
	// A letter may look like another only in the case it is written in.
	return slices.Compact([]string{skeleton(fold(name)), skeleton(name)})
}

// AnySkeletons also returns the skeleton of the name in capitals, in which l, I and 1 are the same. It is for names
// that must not be imitated at all.
func AnySkeletons(name string) []string {
	return append(Skeletons(name), skeleton(upper(norm.NFKC.String(name))))
}

// skeleton is the skeleton of UTS #39, ignoring case. It keeps marks: ü is not u.
func skeleton(s string) string { return fold(exactSkeleton(s)) }

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func fold(s string) string { return cases.Fold().String(s) }

// Plain returns the ASCII letter, digit or sign that a character looks like, in lower case and without marks; it may be
// several characters. A character without a match is returned unchanged.
func Plain(r rune) string {
	for _, written := range []string{string(r), upper(string(r))} {
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

// mixed are the scripts that are written together (UTS #39, "highly restrictive"), each row with Latin.
var mixed = [][]*unicode.RangeTable{
	{unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana},
	{unicode.Latin, unicode.Han, unicode.Bopomofo},
	{unicode.Latin, unicode.Han, unicode.Hangul},
}

// OneScript reports whether all letters of a word are of one script, or of scripts that are written together. A word of
// Latin letters with a Cyrillic one imitates another word.
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
	return !slices.ContainsFunc(letters, func(r rune) bool { return !unicode.In(r, scripts...) })
}

const (
	nonJoiner    = '\u200c'
	joiner       = '\u200d'
	textStyle    = '\ufe0e' // variation selectors of emoji
	emojiStyle   = '\ufe0f'
	keycap       = '\u20e3'
	firstSymbol  = 0x2190 // from here on symbols may be emoji
	firstSkin    = 0x1f3fb
	lastSkin     = 0x1f3ff
	otherSymbols = "©®‼⁉〰〽" // that are also emoji
)

// unseen are the characters without a visible form: format characters (bidirectional controls, zero-width ones, the
// soft hyphen, tags), Unicode's default ignorables, variation selectors, and noncharacters.
var unseen = rangetable.Merge(unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
	unicode.Noncharacter_Code_Point, unicode.Zl, unicode.Zp)

// isUnseen reports whether a character is invisible. The signs that Arabic and Syriac put before numbers are format
// characters, but visible.
func isUnseen(r rune) bool {
	if uint32(r) < plane {
		return unseenInPlane[r/64]&(1<<(r%64)) != 0
	}
	return unicode.Is(unseen, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// plane is the number of characters in the first plane of Unicode, which has almost all text.
const plane = 0x10000

// unseenInPlane caches isUnseen for the first plane, one bit each: the tables are ten times slower.
var unseenInPlane = func() (bits [plane / 64]uint64) {
	for r := range rune(plane) {
		if unicode.IsControl(r) || unicode.Is(unseen, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
			bits[r/64] |= 1 << (r % 64)
		}
	}
	return bits
}()

// joining are the scripts in which a joiner or non-joiner between two letters changes how a word is read.
var joining = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Nko, unicode.Mandaic,
	unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil,
	unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
}

// belongs reports whether an invisible character belongs to its two neighbours: a joiner between letters of a joining
// script, or between emoji; the one selector after an emoji, or in a keycap.
func belongs(before, r, after rune) bool {
	switch r {
	case nonJoiner, joiner:
		for _, script := range joining {
			if unicode.Is(script, before) {
				return unicode.Is(script, after)
			}
		}
		return r == joiner && (isEmoji(before) || before == emojiStyle) && isEmoji(after)
	case textStyle, emojiStyle:
		return isEmoji(before) || after == keycap
	default:
		return false
	}
}

// isEmoji reports whether a character may be an emoji. Go has no table of emoji, and every symbol is visible.
func isEmoji(r rune) bool {
	if r == '\ufffc' || r == '\ufffd' { // placeholders for other content
		return false
	}
	return r >= firstSymbol && unicode.In(r, unicode.So, unicode.Sm) ||
		r >= firstSkin && r <= lastSkin || strings.ContainsRune(otherSymbols, r)
}

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
