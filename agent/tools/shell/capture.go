package shell

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// capture keeps the head and the tail of what a program writes, in bounded memory. It is for one goroutine.
type capture struct {
	half  int    // bytes of each
	head  []byte // the first bytes
	tail  []byte // the last ones that are not in head, as a ring once it is full
	at    int    // where the ring begins
	total int64
}

func newCapture(most int) *capture { return &capture{half: max(1, most/2)} }

// Write implements io.Writer. It never fails.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	room := min(c.half-len(c.head), len(p))
	c.head, p = append(c.head, p[:room]...), p[room:]
	if len(p) > c.half {
		p = p[len(p)-c.half:]
	}
	room = min(c.half-len(c.tail), len(p))
	c.tail, p = append(c.tail, p[:room]...), p[room:]
	for len(p) > 0 {
		copied := copy(c.tail[c.at:], p)
		c.at, p = (c.at+copied)%c.half, p[copied:]
	}
	return n, nil
}

// cut returns how many bytes are not kept.
func (c *capture) cut() int64 { return c.total - int64(len(c.head)) - int64(len(c.tail)) }

// text returns what was kept, as valid UTF-8, with a mark where something was cut.
func (c *capture) text() string {
	tail := string(c.tail[c.at:]) + string(c.tail[:c.at])
	cut := c.cut()
	if cut == 0 {
		return valid(string(c.head) + tail)
	}
	head := string(c.head)
	for i := 0; i < utf8.UTFMax && i < len(head); i++ { // a character that was cut in two
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
