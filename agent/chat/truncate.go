package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	noteBytes = 128 // for the note of what is left out

	// blobLeast is how many characters without a gap count as encoded data. blobLine is the least length of its lines,
	// if it has several.
	blobLeast = 128
	blobLine  = 60

	// blobVariety is how many different characters encoded data has at least in its first blobSample: as many as there
	// are hexadecimal digits.
	blobVariety = 16
	blobSample  = 4096
)

// truncate returns s with at most limit bytes: two thirds from its head, the rest from its tail, and a note between
// them of how much is missing. It divides no character. It divides no base64 either: a part of that is worthless, so
// truncate leaves out all of it, and more of the text around it stays. limit is at least 2*noteBytes.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	kept := limit - noteBytes
	head := boundaryBefore(s, kept*2/3)
	tail := boundaryAfter(s, len(s)-(kept-head))
	head = max(head, boundaryBefore(s, kept-(len(s)-tail)))
	note := fmt.Sprintf("[… %d bytes left out", tail-head)
	if n := blobsIn(s, head, tail); n > 0 {
		note += fmt.Sprintf(", %d of them base64", n)
	}
	return s[:head] + "\n" + note + " …]\n" + s[tail:]
}

// boundaryBefore returns the last place not after i where s may be divided.
func boundaryBefore(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	if a, _, ok := blobAt(s, i); ok {
		return a
	}
	return i
}

// boundaryAfter returns the first place not before i where s may be divided.
func boundaryAfter(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	if _, b, ok := blobAt(s, i); ok {
		return b
	}
	return i
}

// blobsIn returns how many bytes of the base64 at both ends of a gap are left out with it.
func blobsIn(s string, head, tail int) int {
	n, first := 0, -1
	if a, b, ok := blobAt(s, head+1); ok && a == head {
		n, first = b-a, a
	}
	if a, b, ok := blobAt(s, tail-1); ok && b == tail && a != first {
		n += b - a
	}
	return n
}

// blobAt returns the base64 that a division at i would split.
func blobAt(s string, i int) (a, b int, ok bool) {
	if i <= 0 || i >= len(s) {
		return 0, 0, false
	}
	at := i - 1
	if !isBase64(s[at]) {
		at = i
	}
	if !isBase64(s[at]) {
		return 0, 0, false
	}
	a, b = wordStart(s, at), wordEnd(s, at)
	last := b - a // length of the last line
	for {         // lines before
		end := a - len(breakBefore(s[:a]))
		start := wordStart(s, end)
		if end == a || end-start < blobLine {
			break
		}
		a = start
	}
	for { // lines after: the last one may be short, if it ends as a line does
		start := b + len(breakAfter(s[b:]))
		end := wordEnd(s, start)
		if start == b || last < blobLine || end == start || end-start < blobLine && !endsLine(s[end:]) {
			break
		}
		b, last = end, end-start
	}
	return a, b, a < i && i < b && b-a >= blobLeast && isVaried(s[a:b])
}

// isVaried reports whether characters are as mixed as those of encoded data. A run of one letter or word has the
// alphabet of base64, too, but each part of it is worth as much as the whole.
func isVaried(s string) bool {
	var seen [256]bool
	different, upper, lower, digit := 0, false, false, false
	for i := range min(len(s), blobSample) {
		c := s[i]
		if !isBase64(c) || seen[c] {
			continue
		}
		seen[c] = true
		different++
		upper = upper || c >= 'A' && c <= 'Z'
		lower = lower || c >= 'a' && c <= 'z'
		digit = digit || c >= '0' && c <= '9'
	}
	return different >= blobVariety && (upper && lower || digit && (upper || lower))
}

// wordStart returns where the base64 characters before i begin.
func wordStart(s string, i int) int {
	for i > 0 && isBase64(s[i-1]) {
		i--
	}
	return i
}

// wordEnd returns where the base64 characters from i on end.
func wordEnd(s string, i int) int {
	for i < len(s) && isBase64(s[i]) {
		i++
	}
	return i
}

// isBase64 knows both alphabets.
func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/=-_", c) >= 0
}

// lineBreaks are what may stand between two lines of base64: a line feed, or an escaped one in a JSON string, whose
// letter looks like the beginning of the next line.
var lineBreaks = []string{"\n", `\r\`, `\`}

func breakBefore(s string) string {
	for _, b := range lineBreaks {
		if strings.HasSuffix(s, b) {
			return b
		}
	}
	return ""
}

func breakAfter(s string) string {
	for _, b := range lineBreaks {
		if strings.HasPrefix(s, b) {
			return b
		}
	}
	return ""
}

func endsLine(rest string) bool { return rest == "" || strings.IndexByte("\n\\\"'", rest[0]) >= 0 }
