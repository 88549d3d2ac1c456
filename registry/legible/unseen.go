package legible

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

const (
	nonJoiner    = '\u200c'
	joiner       = '\u200d'
	textStyle    = '\ufe0e' // variation selectors of emoji
	emojiStyle   = '\ufe0f'
	keycap       = '\u20e3'
	firstSymbol  = 0x2190 // from here on symbols may be emoji
	firstSkin    = 0x1f3fb
	lastSkin     = 0x1f3ff
	otherSymbols = "©®‼⁉〰〽" // that are emoji, too
)

// unseen are the characters without a look of their own: format characters (bidirectional controls, zero-width ones,
// the soft hyphen, tags), what Unicode calls default ignorable, variation selectors, and code points that are no
// characters.
var unseen = rangetable.Merge(unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
	unicode.Noncharacter_Code_Point, unicode.Zl, unicode.Zp)

// isUnseen reports whether a reader does not see a character. The signs that Arabic and Syriac put before numbers are
// format characters that are seen.
func isUnseen(r rune) bool {
	if uint32(r) < plane {
		return unseenInPlane[r/64]&(1<<(r%64)) != 0
	}
	return unicode.Is(unseen, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// plane is how many characters the first plane of Unicode has, where almost all text is.
const plane = 0x10000

// unseenInPlane is what isUnseen says of them, one bit each: looking into tables costs ten times as much.
var unseenInPlane = func() (bits [plane / 64]uint64) {
	for r := range rune(plane) {
		if unicode.IsControl(r) || unicode.Is(unseen, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
			bits[r/64] |= 1 << (r % 64)
		}
	}
	return bits
}()

// joining are the scripts in which a joiner, or its opposite, between two letters changes how a word is read.
var joining = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Nko, unicode.Mandaic,
	unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil,
	unicode.Telugu,
	unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
}

// belongs reports whether a character that is not seen itself belongs to how the two beside it are written: a joiner
// between letters of a script that joins, or between emoji; the one selector behind an emoji, or in a keycap.
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

// isEmoji reports whether a character may be an emoji: Go has no table of those, and any symbol is seen.
func isEmoji(r rune) bool {
	if r == '\ufffc' || r == '\ufffd' { // stand for something else
		return false
	}
	return r >= firstSymbol && unicode.In(r, unicode.So, unicode.Sm) ||
		r >= firstSkin && r <= lastSkin || strings.ContainsRune(otherSymbols, r)
}
