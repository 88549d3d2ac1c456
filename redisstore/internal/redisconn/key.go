package redisconn

import "strings"

// Escape makes a part of a key: it keeps letters, digits, '.', '_' and '-' and percent-encodes every other byte. So
// nothing a device or a caller says can end a hash tag, reach another key, or look like a separator.
func Escape(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = isPlain(s[i])
	}
	if plain {
		return s
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
