package shell

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	reportEvery = 100 * time.Millisecond
	reportBytes = 4 << 10   // maximum per report
	maxReported = 256 << 10 // maximum per command
)

// progress reports the output of a program while it runs, at most every reportEvery, or when reportBytes are pending.
// It is safe for concurrent use.
type progress struct {
	report func(chunk string) // must not block

	mu       sync.Mutex
	pending  []byte
	timer    *time.Timer // runs while output is pending; nil: not used yet
	reported int
	ended    bool
}

// write takes output of the program. It never fails.
func (p *progress) write(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(text) > 0 && !p.ended {
		n := min(len(text), reportBytes-len(p.pending), maxReported-p.reported-len(p.pending))
		if n <= 0 { // the limit of this command is reached
			break
		}
		first := len(p.pending) == 0
		p.pending, text = append(p.pending, text[:n]...), text[n:]
		switch {
		case len(p.pending) == reportBytes || p.reported+len(p.pending) == maxReported:
			p.flushLocked()
		case first:
			p.waitLocked()
		}
	}
	if p.reported == maxReported && !p.ended {
		p.ended = true
		p.report("\n[further output is not shown while the command runs]\n")
	}
}

func (p *progress) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.flushLocked()
	}
}

// waitLocked schedules a report of the pending output.
func (p *progress) waitLocked() {
	if p.timer == nil {
		p.timer = time.AfterFunc(reportEvery, p.flush)
		return
	}
	p.timer.Reset(reportEvery)
}

// flushLocked reports the pending output. An incomplete UTF-8 character at the end waits for one more interval.
func (p *progress) flushLocked() {
	if len(p.pending) == 0 {
		return
	}
	whole := p.wholeLocked()
	if whole == 0 { // it has waited already
		whole = len(p.pending)
	}
	p.reported += whole
	p.report(valid(string(p.pending[:whole])))
	p.pending = append(p.pending[:0], p.pending[whole:]...)
	if len(p.pending) > 0 {
		p.waitLocked()
	}
}

// wholeLocked returns the number of pending bytes without an incomplete character at the end.
func (p *progress) wholeLocked() int {
	for i := 1; i <= min(utf8.UTFMax, len(p.pending)); i++ {
		from := len(p.pending) - i
		if !utf8.RuneStart(p.pending[from]) {
			continue
		}
		if !utf8.FullRune(p.pending[from:]) && p.reported+len(p.pending) < maxReported {
			return from
		}
		break
	}
	return len(p.pending)
}

// end reports the rest, and stops reporting.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if !p.ended && len(p.pending) > 0 {
		p.report(valid(string(p.pending)))
	}
	p.ended = true
}

// tee is an output of a program. It both keeps and reports it.
type tee struct {
	*capture
	progress *progress
}

var _ io.Writer = tee{}

// Write implements io.Writer.
func (t tee) Write(p []byte) (int, error) {
	t.progress.write(p)
	return t.capture.Write(p)
}

// capture keeps the head and the tail of a program's output, in bounded memory. It is not safe for concurrent use.
type capture struct {
	half  int    // maximum size of each, in bytes
	head  []byte // the first bytes
	tail  []byte // the last bytes that are not in head; a ring buffer once full
	at    int    // start of the ring
	total int64
}

func newCapture(most int) *capture { return &capture{half: max(1, most/2)} }

// Write implements io.Writer. It never fails.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	free := min(c.half-len(c.head), len(p))
	c.head, p = append(c.head, p[:free]...), p[free:]
	if len(p) > c.half {
		p = p[len(p)-c.half:]
	}
	free = min(c.half-len(c.tail), len(p))
	c.tail, p = append(c.tail, p[:free]...), p[free:]
	for len(p) > 0 {
		copied := copy(c.tail[c.at:], p)
		c.at, p = (c.at+copied)%c.half, p[copied:]
	}
	return n, nil
}

// cut returns the number of bytes that were dropped.
func (c *capture) cut() int64 { return c.total - int64(len(c.head)) - int64(len(c.tail)) }

// text returns the kept output as valid UTF-8, with a mark where bytes were dropped.
func (c *capture) text() string {
	tail := string(c.tail[c.at:]) + string(c.tail[:c.at])
	cut := c.cut()
	if cut == 0 {
		return valid(string(c.head) + tail)
	}
	head := string(c.head)
	for i := 0; i < utf8.UTFMax && i < len(head); i++ { // an incomplete character
		if r, size := utf8.DecodeLastRuneInString(head[:len(head)-i]); r != utf8.RuneError || size > 1 {
			cut, head = cut+int64(i), head[:len(head)-i]
			break
		}
	}
	for i := 0; i < utf8.UTFMax && tail != "" && !utf8.RuneStart(tail[0]); i++ {
		cut, tail = cut+1, tail[1:]
	}
	return fmt.Sprintf("%s\n[cut: %d bytes]\n%s", valid(head), cut, valid(tail))
}

func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
