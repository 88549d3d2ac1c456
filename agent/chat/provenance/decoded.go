package provenance

import (
	"encoding/base64"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minEncoded = 12      // characters of base64 that are looked at
	maxDecoded = 1 << 18 // bytes of one text that are decoded
)

// decoded returns what stands in a text in base64 or percent-encoded, empty if nothing does. It decodes once.
func decoded(text string) string {
	var out strings.Builder
	for at := 0; at < len(text) && out.Len() < maxDecoded; {
		end := at
		for end < len(text) && !endsChunk(text[end]) && text[end] != ',' && text[end] != '\'' {
			end++
		}
		chunk := text[at:end]
		at = end + 1
		if strings.IndexByte(chunk, '%') >= 0 {
			if plain, err := url.PathUnescape(chunk); err == nil && plain != chunk {
				out.WriteString(plain + "\n")
			}
		}
		if plain, ok := fromBase64(chunk); ok {
			out.WriteString(plain + "\n")
		}
	}
	return out.String()
}

// fromBase64 decodes text that is base64 of readable text.
func fromBase64(s string) (string, bool) {
	s = strings.TrimRight(s, "=.")
	if len(s) < minEncoded || len(s) > maxDecoded {
		return "", false
	}
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		encoding = base64.RawURLEncoding
	}
	plain, err := encoding.DecodeString(s)
	if err != nil || !utf8.Valid(plain) {
		return "", false
	}
	for _, r := range string(plain) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return "", false
		}
	}
	return string(plain), true
}
