package chat

import (
	"strings"
	"testing"
)

// What has the letters of base64, but not its variety, is text: it is cut, not left out.
func TestLongRunsThatAreNoBase64AreCut(t *testing.T) {
	for name, s := range map[string]string{
		"one letter":       strings.Repeat("a", 100_000),
		"zeros":            strings.Repeat("0", 100_000),
		"a line":           strings.Repeat("=-", 50_000),
		"a word":           strings.Repeat("Lorem1psum", 10_000),
		"between text":     "before " + strings.Repeat("x", 100_000) + " after",
		"lines":            strings.Repeat(strings.Repeat("z", 76)+"\n", 2_000),
		"small letters":    strings.Repeat("abcdefghijklmnopqrstuvwxyz", 4_000),
		"a letter in JSON": `{"text":"` + strings.Repeat("a", 100_000) + `"}`,
	} {
		got := truncate(s, 8<<10)
		if len(got) > 8<<10 || len(got) < 8<<10-2*noteBytes || strings.Contains(got, "base64") {
			t.Errorf("%s: %d bytes are left: %.60q … %.60q", name, len(got), got, got[max(0, len(got)-60):])
		}
		if head, tail, ok := strings.Cut(got, "\n[…"); !ok || !strings.HasPrefix(s, head) || len(head) < 4<<10 ||
			!strings.HasSuffix(s, tail[strings.Index(tail, "…]\n")+len("…]\n"):]) {
			t.Errorf("%s: not its head and tail", name)
		}
	}
}
