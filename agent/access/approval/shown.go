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

// longArgs is how many bytes of arguments a person may overlook something in.
const longArgs = 1000

// Remarks about arguments that a person should look at twice.
const (
	RemarkLong      = "long"      // there is much to read
	RemarkMultiline = "multiline" // a text has several lines
	RemarkHidden    = "hidden"    // a text has characters that are not seen, change the direction, or push others away
	RemarkForeign   = "foreign"   // a text has letters outside ASCII, which may look like others
)

// Shown returns arguments as a person may read them in any terminal or page: whole, one argument to a line, every
// character that is not plainly seen as its escape. It also returns remarks.
func Shown(args registry.JSON) (text string, remarks []string) {
	raw := args.Raw()
	var indented bytes.Buffer
	if json.Indent(&indented, raw, "", "  ") != nil { // arguments are JSON
		indented.Reset()
		indented.Write(raw)
	}
	plain := indented.String()
	text = escaped(plain)
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

// escaped returns JSON with an escape in place of every character in it that a reader would not see.
func escaped(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r == '\n' || ' ' <= r && r <= '~': // most arguments are nothing else
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

// isUnseen reports whether a reader would not see a character, or not where it stands.
func isUnseen(r rune) bool {
	return r == utf8.RuneError || r == brailleBlank || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) ||
		legible.Hides(string(r))
}

// brailleBlank counts as a sign, and looks like a space.
const brailleBlank = '\u2800'

// manySpaces push what stands behind them out of sight.
const manySpaces = "                "

// spreads reports whether a text in some JSON has many spaces in a row.
func spreads(raw []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, raw) == nil && strings.Contains(decoded(compact.Bytes()), manySpaces)
}

// hides reports whether the texts in some JSON hide anything, also when they are written with escapes.
func hides(raw []byte) bool { return legible.Hides(strings.ReplaceAll(decoded(raw), "\n", " ")) }

// decoded returns JSON with its escapes of characters as those characters.
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
