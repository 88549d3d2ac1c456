package upstream

import "time"

// Bounds of how often the tools of a server are listed that says that they change.
const (
	minCalm  = time.Second      // from one list to the next
	maxCalm  = time.Minute      // the same, of a server that says so all the time
	minQuiet = 10 * time.Second // after which a server begins anew
)

// calm says when the tools of a server are listed again that says that they have changed: the more often it says so,
// the later.
type calm struct {
	pause  time.Duration // from the last list to the next
	waited time.Duration // the pause before the last list; zero: it was the first of its kind
	last   time.Time     // when the tools were listed
}

func newCalm() *calm { return &calm{pause: minCalm} }

// listed notes that the tools were listed.
func (c *calm) listed() { c.last = time.Now() }

// wait returns how long to wait before the next list, now that the server says that its tools have changed. A server
// that was quiet for twice as long as it had to wait last begins anew.
func (c *calm) wait() time.Duration {
	quiet := time.Since(c.last)
	if quiet >= max(2*c.waited, minQuiet) {
		c.waited, c.pause = 0, minCalm
		return 0
	}
	c.waited, c.pause = c.pause, min(2*c.pause, maxCalm)
	return max(0, c.waited-quiet)
}
