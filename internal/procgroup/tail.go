package procgroup

import (
	"strings"
	"sync"
)

// Tail keeps the last bytes that are written to it, to report what a command printed. It is safe for concurrent use.
type Tail struct {
	max int // bytes

	mu   sync.Mutex
	text []byte
}

// NewTail returns an empty Tail that keeps at most max bytes.
func NewTail(max int) *Tail { return &Tail{max: max} }

// Write implements io.Writer. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[max(0, len(b)-t.max):]...)
	if more := len(t.text) - t.max; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(b), nil
}

// String returns the kept text, without bytes that are not UTF-8.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.text), "")
}
