package browser

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// notes is what happened aside, for the next answer.
type notes struct {
	mu    sync.Mutex
	lines []string
}

const (
	maxNotes    = 8
	maxShownURL = 300 // bytes
	maxShown    = 300 // bytes of other text of a page
)

// add notes a line, unless there are enough.
func (n *notes) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.lines) < maxNotes {
		n.lines = append(n.lines, line)
	}
}

// take returns the lines and forgets them.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// failure is an error whose text is for the model.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

// short is the beginning of a text on one line.
func short(text string, bytes int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes] + "…"
}
