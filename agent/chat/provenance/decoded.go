package provenance

import (
	"encoding/base64"
	"html"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	minEncoded = 12      // minimum length of base64 to decode, in characters
	maxDecoded = 1 << 18 // maximum number of decoded bytes of one text
)

// decoded returns the encoded parts of a text, decoded: base64, references of HTML, percent-encoding in either, encoded
// words of mail, and what eachSpelling finds. It is empty if there are none. cut reports that there are more.
func decoded(text string) (plain string, cut bool) {
	var out strings.Builder
	write := func(plain string) bool {
		out.WriteString(plain + "\n")
		return out.Len() < maxDecoded
	}
	layers := func(plain string) bool { return write(plain) && eachLayer(plain, write) }
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && !endsChunk(text[end]) && text[end] != ',' && text[end] != '\'' {
			end++
		}
		chunk := text[at:end]
		at = end + 1
		plain, ok, more := fromBase64(chunk)
		if more || ok && !write(plain) || !eachLayer(chunk, write) {
			return out.String(), true
		}
	}
	eachMailText(text, layers)
	eachSpelling(text, layers)
	return out.String(), out.Len() >= maxDecoded
}

// eachLayer calls visit with a text without references of HTML, then also without percent-encoding, if it has any,
// until visit returns false. It reports whether visit never did.
func eachLayer(text string, visit func(plain string) bool) bool {
	if strings.IndexByte(text, '&') >= 0 {
		if plain := html.UnescapeString(text); plain != text {
			if text = plain; !visit(plain) {
				return false
			}
			if whole := unbroken(plain); strings.Contains(whole, "//") && whole != plain && !visit(whole) {
				return false
			}
		}
	}
	plain := unpercent(text)
	return plain == text || visit(plain)
}

// unpercent decodes what is valid percent-encoding in a text, as browsers do.
func unpercent(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if b, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out.WriteByte(byte(b))
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// eachMailText calls visit with the decoded form of each part of a text that has encoded words of mail (RFC 2047),
// until visit returns false. Space between two words is no part of what they say. Text that touches them is.
func eachMailText(text string, visit func(plain string) bool) {
	words := mime.WordDecoder{ // most charsets contain ASCII
		CharsetReader: func(_ string, text io.Reader) (io.Reader, error) { return text, nil },
	}
	for done, at := 0, 0; ; {
		begin := strings.Index(text[at:], "=?")
		if begin < 0 {
			return
		}
		begin += at
		at = begin + len("=?")
		end := begin
		var plain strings.Builder
		for next := begin; ; {
			word := text[next:mailWordEnd(text, next)]
			said, err := words.Decode(word)
			if err != nil {
				break
			}
			plain.WriteString(said)
			end = next + len(word)
			next = len(text) - len(strings.TrimLeft(text[end:], " \t\r\n"))
		}
		if end == begin {
			continue
		}
		for begin > done && !endsChunk(text[begin-1]) {
			begin--
		}
		before := text[begin : at-len("=?")]
		for at = end; end < len(text) && !endsChunk(text[end]) && !strings.HasPrefix(text[end:], "=?"); end++ {
		}
		if !visit(before + plain.String() + text[at:end]) {
			return
		}
		done, at = end, end
	}
}

// mailWordEnd returns the end of the encoded word that begins at begin, which is begin if there is none. A word has
// four question marks: =?utf-8?Q?text?=
func mailWordEnd(text string, begin int) int {
	at := begin
	for range 4 {
		next := strings.IndexByte(text[at:], '?')
		if next < 0 {
			return begin
		}
		at += next + 1
	}
	return min(at+1, len(text))
}

// fromBase64 decodes base64. It fails if the result is not readable text. more reports that it is readable, but too
// long to be decoded.
func fromBase64(s string) (text string, ok, more bool) {
	s = strings.TrimRight(s, "=.")
	if len(s) < minEncoded {
		return "", false, false
	}
	if len(s) > maxDecoded {
		s, more = s[:maxDecoded], true
	}
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		encoding = base64.RawURLEncoding
	}
	plain, err := encoding.DecodeString(s)
	for i := 1; more && i < utf8.UTFMax; i++ { // the cut may be inside a character
		if r, n := utf8.DecodeLastRune(plain); r == utf8.RuneError && n == 1 {
			plain = plain[:len(plain)-1]
		}
	}
	if err != nil || !utf8.Valid(plain) {
		return "", false, false
	}
	for _, r := range string(plain) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return "", false, false
		}
	}
	return string(plain), !more, more
}
