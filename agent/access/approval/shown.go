package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

// longArgs is the length of arguments, in bytes, above which a person may overlook something.
const longArgs = 1000

// Remarks about arguments that a person should check with care.
const (
	RemarkLong      = "long"      // much text
	RemarkMultiline = "multiline" // a text has several lines
	RemarkHidden    = "hidden"    // a text has invisible characters, changes direction, or pushes text out of sight
	RemarkForeign   = "foreign"   // a text has letters outside ASCII, which may look like others
)

// Shown returns arguments that are safe to read in any terminal or page: complete, one argument per line, with an
// escape for every character that is not clearly visible. It also returns remarks.
func Shown(args registry.JSON) (text string, remarks []string) {
	raw := args.Raw()
	var indented bytes.Buffer
	if json.Indent(&indented, raw, "", "  ") != nil { // cannot fail: arguments are valid JSON
		indented.Reset()
		indented.Write(raw)
	}
	plain := indented.String()
	text = escapeUnseen(plain)
	if len(raw) > longArgs {
		remarks = append(remarks, RemarkLong)
	}
	if strings.Contains(plain, `\n`) || strings.Contains(plain, `\u000a`) || strings.Contains(plain, `\u000A`) {
		remarks = append(remarks, RemarkMultiline)
	}
	if text != plain || hides(raw) || spreads(raw) {
		remarks = append(remarks, RemarkHidden)
	}
	if !legible.IsASCII(decoded(raw)) {
		remarks = append(remarks, RemarkForeign)
	}
	return text, remarks
}

// escapeUnseen returns JSON in which every character that a reader would not see is escaped.
func escapeUnseen(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r == '\n' || ' ' <= r && r <= '~': // the common case
			b.WriteRune(r)
		case isUnseen(r):
			if r > 0xffff {
				r -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
				continue
			}
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnseen reports whether a reader would not see a character or its position.
func isUnseen(r rune) bool {
	return r == utf8.RuneError || r == brailleBlank || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) ||
		legible.Hides(string(r))
}

// brailleBlank is a printable character that looks like a space.
const brailleBlank = '\u2800'

// manySpaces is enough to push the text after it out of sight.
const manySpaces = "                "

// spreads reports whether a string in JSON has many spaces in a row.
func spreads(raw []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, raw) == nil && strings.Contains(decoded(compact.Bytes()), manySpaces)
}

// hides reports whether strings in JSON hide anything, also if it is escaped.
func hides(raw []byte) bool { return legible.Hides(strings.ReplaceAll(decoded(raw), "\n", " ")) }

// decoded returns JSON with its \u escapes replaced by the characters.
func decoded(raw []byte) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+5 < len(raw) && raw[i+1] == 'u' {
			if code, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16); err == nil {
				b.WriteRune(rune(code))
				i += 5
				continue
			}
		}
		b.WriteByte(raw[i])
		if raw[i] == '\\' && i+1 < len(raw) {
			i++
			b.WriteByte(raw[i])
		}
	}
	return b.String()
}
