package textsafe

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

const (
	minBase64 = 64      // characters; shorter runs may be anything, and cost a reader little
	sureBytes = 1 << 10 // bytes from which a bitmap's two magic bytes are trusted
	sniffed   = 512     // bytes that net/http uses to detect a type
)

// WithoutData replaces base64 of images, audio and video, and base64 of the given data, with a description. The type is
// detected from the first bytes. The base64 may be URL-safe, without padding, or escaped in JSON. Base64 with line
// breaks is not found. JSON stays valid JSON.
func WithoutData(text string, data ...[]byte) string {
	if len(text) < minBase64 {
		return text
	}
	var b strings.Builder
	rest := 0 // start of the text that was not copied yet
	for i := 0; i < len(text); {
		digits, n := base64Run(text[i:])
		if kind, size := kindOf(digits, data); kind != "" {
			b.WriteString(text[rest:i])
			fmt.Fprintf(&b, "[%s, %d bytes]", kind, size)
			rest = i + n
		}
		if n == 0 {
			n = otherSize(text[i:])
		}
		i += n
	}
	if rest == 0 {
		return text
	}
	b.WriteString(text[rest:])
	return b.String()
}

// base64Run returns the base64 at the start of a text, without padding and escapes, and the bytes of text that it
// takes. The digits are in the standard alphabet. A run that is too short has no digits.
func base64Run(text string) (digits []byte, n int) {
	count := 0
	for n < len(text) {
		if _, size := base64Digit(text[n:]); size > 0 {
			count, n = count+1, n+size
			continue
		}
		break
	}
	if count < minBase64 {
		return nil, n
	}
	digits = make([]byte, 0, count)
	for i := 0; i < n; {
		c, size := base64Digit(text[i:])
		digits, i = append(digits, c), i+size
	}
	return bytes.TrimRight(digits, "="), n
}

// base64Digit returns the base64 digit, or the padding, at the start of a text, and the bytes that it takes; zero if
// there is none.
func base64Digit(text string) (digit byte, size int) {
	switch c := text[0]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/', c == '=':
		return c, 1
	case c == '-':
		return '+', 1
	case c == '_':
		return '/', 1
	case c != '\\':
		return 0, 0
	}
	if strings.HasPrefix(text, `\/`) {
		return '/', 2
	}
	const escaped = len(`\u002b`)
	if len(text) < escaped {
		return 0, 0
	}
	switch strings.ToLower(text[:escaped]) {
	case `\u002b`:
		return '+', escaped
	case `\u002f`:
		return '/', escaped
	case `\u003d`:
		return '=', escaped
	default:
		return 0, 0
	}
}

// otherSize returns how many bytes at the start of a text are certainly not base64. It skips a JSON escape as a whole,
// also in JSON inside a JSON string, because its letter is not a base64 digit.
func otherSize(text string) int {
	n := len(text) - len(strings.TrimLeft(text, `\`))
	switch {
	case n == 0:
		return 1
	case n == len(text) || !strings.ContainsRune("bfnrtu", rune(text[n])):
		return n
	case text[n] != 'u':
		return n + 1
	}
	const escaped = len("u000a")
	return min(n+escaped, len(text))
}

// kindOf returns the type and size of base64 data. The type is empty if it may be text, or a token.
func kindOf(digits []byte, data [][]byte) (kind string, size int) {
	if len(digits) == 0 {
		return "", 0
	}
	encoding := base64.RawStdEncoding
	size = encoding.DecodedLen(len(digits))
	var first [sniffed]byte
	head := digits[:min(len(digits), encoding.EncodedLen(sniffed))]
	n, err := encoding.Decode(first[:], head[:len(head)/4*4])
	if err != nil {
		return "", 0
	}
	kind, _, _ = strings.Cut(http.DetectContentType(first[:n]), ";")
	major, _, _ := strings.Cut(kind, "/")
	switch {
	case kind == "image/bmp" && size < sureBytes:
	case major == "image", major == "audio", major == "video", kind == "application/ogg", kind == "application/pdf":
		return kind, size
	}
	for _, known := range data {
		if len(known) != size || !bytes.HasPrefix(known, first[:n]) {
			continue
		}
		if decoded, err := encoding.AppendDecode(nil, digits); err == nil && bytes.Equal(decoded, known) {
			return "binary data", size
		}
	}
	return "", 0
}
