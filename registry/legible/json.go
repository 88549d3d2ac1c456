package legible

import (
	"bytes"

	"github.com/farhand/farhand/internal/strictjson"
)

// CleanJSON returns a JSON text whose strings are clean, also those that are names of members; the rest of it is kept
// byte for byte. It reports false if two names of one object are the same then. text must be valid.
func CleanJSON(text []byte) (clean []byte, ok bool) {
	if !maybeUnseen(text) {
		return text, true
	}
	out, renamed := make([]byte, 0, len(text)), false
	for len(text) > 0 {
		at := bytes.IndexByte(text, '"')
		if at < 0 {
			break
		}
		out, text = append(out, text[:at]...), text[at:]
		quoted := text[:quotedLen(text)]
		text = text[len(quoted):]
		said := strictjson.Text(quoted)
		seen := Clean(said)
		if seen == said {
			out = append(out, quoted...)
			continue
		}
		out = strictjson.AppendString(out, seen)
		renamed = renamed || bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte(":"))
	}
	out = append(out, text...)
	return out, !renamed || strictjson.Valid(out)
}

// quotedLen returns the length of the string of JSON that a text begins with.
func quotedLen(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
