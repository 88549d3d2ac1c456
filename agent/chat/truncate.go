package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/provider"
)

const (
	noteBytes = 128 // room for the note about the gap

	// blobLeast is how many characters without a gap count as encoded data. blobLine is the minimum length of its
	// lines, if it has several.
	blobLeast = 128
	blobLine  = 60

	// blobVariety is the minimum number of different characters in the first blobSample bytes of encoded data. It
	// equals the number of hexadecimal digits.
	blobVariety = 16
	blobSample  = 4096
)

// truncate returns s with at most limit bytes: two thirds from its head, the rest from its tail, and a note between. It
// never splits a character or base64, of which a part is worthless. limit must be at least 2*noteBytes.
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

// boundaryBefore returns the last position at or before i where s may be split.
func boundaryBefore(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	if a, _, ok := blobAt(s, i); ok {
		return a
	}
	return i
}

// boundaryAfter returns the first position at or after i where s may be split.
func boundaryAfter(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	if _, b, ok := blobAt(s, i); ok {
		return b
	}
	return i
}

// blobsIn returns how many bytes of base64 at both ends of a gap are dropped with it.
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

// blobAt returns the base64 that a split at i would divide.
func blobAt(s string, i int) (a, b int, ok bool) {
	if i <= 0 || i >= len(s) {
		return 0, 0, false
	}
	a, b = wordStart(s, i), wordEnd(s, i)
	last := b - a // length of the last line
	for {         // preceding lines
		end := a - lineBreak(s[:a], strings.HasSuffix)
		start := wordStart(s, end)
		if end == a || end-start < blobLine {
			break
		}
		a = start
	}
	for { // following lines: the last one may be short, if it ends as a line does
		start := b + lineBreak(s[b:], strings.HasPrefix)
		end := wordEnd(s, start)
		if start == b || last < blobLine || end == start || end-start < blobLine && !endsLine(s[end:]) {
			break
		}
		b, last = end, end-start
	}
	return a, b, a < i && i < b && b-a >= blobLeast && isVaried(s[a:b])
}

// isVaried reports whether characters are as mixed as in encoded data, unlike a run of one letter or word.
func isVaried(s string) bool {
	var seen [256]bool
	different, upper, lower, digit := 0, false, false, false
	for i := range min(len(s), blobSample) {
		c := s[i]
		if seen[c] || strings.IndexByte(base64Chars, c) < 0 {
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

const base64Chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"

func wordStart(s string, i int) int { return len(strings.TrimRight(s[:i], base64Chars)) }

func wordEnd(s string, i int) int { return len(s) - len(strings.TrimLeft(s[i:], base64Chars)) }

// lineBreaks are the separators between two lines of base64; an escaped one has a letter, which is base64, at its end.
var lineBreaks = []string{"\n", `\r\`, `\`}

// lineBreak returns the length of the separator that is at the end of a text, or at its start.
func lineBreak(s string, at func(s, separator string) bool) int {
	for _, b := range lineBreaks {
		if at(s, b) {
			return len(b)
		}
	}
	return 0
}

func endsLine(rest string) bool { return rest == "" || strings.IndexByte("\n\\\"'", rest[0]) >= 0 }

const (
	leastText = 512 // minimum bytes of a truncated text: enough for the marks around a tool's output
	leastArgs = 128 // arguments up to this length are not replaced, in bytes

	noteImage = "[image left out to save space]"
)

// shortenGroup makes one group of messages fit into about limit tokens. It takes each step only if the previous ones
// were not enough. It first drops the images of results, oldest first, and then truncates texts that alone exceed half
// of the limit. Next it replaces the oldest tool results by notes, then images, thoughts and arguments. Finally it
// truncates all texts to the same length. A group that still does not fit cannot be sent.
func shortenGroup(messages []provider.Message, limit int) []provider.Message {
	messages = slices.Clone(messages)
	total := estimateAll(messages)
	each := func(step func(m *provider.Message)) {
		for i := range messages {
			if total <= limit {
				return
			}
			was := estimate(messages[i])
			step(&messages[i])
			total += estimate(messages[i]) - was
		}
	}
	half := max(limit*bytesPerToken/2, leastText)
	each(leaveOutPictures)
	each(func(m *provider.Message) { truncateText(m, half) })
	each(leaveOutResult)
	each(leaveOutImages)
	each(func(m *provider.Message) { m.Thinking = nil })
	each(leaveOutArgs)
	for length := half; total > limit && length > leastText; {
		length = max(length/2, leastText)
		each(func(m *provider.Message) { truncateText(m, length) })
	}
	return messages
}

func truncateText(m *provider.Message, n int) {
	if len(m.Content) <= n {
		return
	}
	leaveOutImages(m)
	m.Content, m.Parts = truncate(m.Content, n), nil
}

func leaveOutResult(m *provider.Message) {
	note := fmt.Sprintf("[result of %d bytes left out to save space]", len(m.Content))
	if m.Role == provider.RoleTool && len(note) < len(m.Content) {
		m.Content = note
	}
}

func leaveOutPictures(m *provider.Message) {
	if len(m.Pictures) > 0 {
		m.Content, m.Pictures = m.Content+"\n"+noteImage, nil
	}
}

func leaveOutImages(m *provider.Message) {
	if images(*m) == 0 {
		return
	}
	m.Content = ""
	for _, p := range m.Parts {
		if p.Image != nil {
			p.Text = noteImage
		}
		m.Content += p.Text
	}
	m.Parts = nil
}

// leaveOutArgs replaces long arguments by a note. The note is a JSON object, as arguments are.
func leaveOutArgs(m *provider.Message) {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		if n := len(m.ToolCalls[i].Args); n > leastArgs {
			m.ToolCalls[i].Args = fmt.Sprintf(`{"left_out":"%d bytes, to save space"}`, n)
		}
	}
}

func images(m provider.Message) int {
	n := 0
	for _, p := range m.Parts {
		if p.Image != nil {
			n++
		}
	}
	return n
}

// tooLong returns an error if a request still exceeds the limit after everything droppable was dropped.
func (l *loop) tooLong(r provider.Request) error {
	fixed, tokens := estimateFixed(r), estimateFixed(r)+estimateAll(r.Messages)
	if tokens <= l.limits.ContextTokens {
		return nil
	}
	return badRequest("messages", "The conversation is too long: about %d tokens, %d of them instructions and tools; "+
		"a request may have %d. Start a new one, or send fewer tools.", tokens, fixed, l.limits.ContextTokens)
}
