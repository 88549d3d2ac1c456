package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// longArgs is the length of arguments, in bytes, above which a person may overlook something.
const longArgs = 1000

// Remarks about arguments that a person should check with care.
const (
	remarkLong      = "long"      // much text
	remarkMultiline = "multiline" // a text has several lines
	remarkHidden    = "hidden"    // a text has invisible characters, changes direction, or pushes text out of sight
	remarkForeign   = "foreign"   // a text has letters outside ASCII, which may look like others
)

// Shown returns arguments that are safe to read in any terminal or page: complete, one argument per line, with an
// escape for every character that is not clearly visible. It also returns remarks.
func Shown(args registry.JSON) (text string, remarks []string) {
	raw := args.Raw()
	var indented bytes.Buffer
	_ = json.Indent(&indented, raw, "", "  ") // cannot fail: arguments are valid JSON
	plain := indented.String()
	text = escapeUnseen(plain)
	if len(raw) > longArgs {
		remarks = append(remarks, remarkLong)
	}
	if strings.Contains(plain, `\n`) || strings.Contains(plain, `\u000a`) || strings.Contains(plain, `\u000A`) {
		remarks = append(remarks, remarkMultiline)
	}
	readable := decoded(raw)
	if text != plain || textsafe.Hides(strings.ReplaceAll(readable, "\n", " ")) || spreads(raw) {
		remarks = append(remarks, remarkHidden)
	}
	if !textsafe.IsASCII(readable) {
		remarks = append(remarks, remarkForeign)
	}
	return text, remarks
}

// escapeUnseen returns JSON in which every character that a reader would not see is escaped.
func escapeUnseen(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r != '\n' && (r < ' ' || r > '~') && isUnseen(r): // most are ASCII
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnseen reports whether a reader would not see a character or its position.
func isUnseen(r rune) bool {
	return r == utf8.RuneError || r == brailleBlank || !unicode.IsPrint(r) || unicode.Is(unicode.M, r) ||
		textsafe.Hides(string(r))
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
