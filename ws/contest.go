package ws

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// introductionWait is how long it may take to decide which connection has a session. The time in which the device says
// nothing counts.
const introductionWait = 5 * time.Second

// contest is the claim of a connection whose session another connection has.
type contest struct {
	introductions chan registry.Introduction // capacity 1: what the device says of itself
	stop          context.CancelFunc
	done          chan struct{} // closed when it is decided: the connection has its session, or is being closed
}

// startContest decides in the background whether the connection gets a session that another connection has. Meanwhile
// the reader reads the device's first frame, which may prove that it is the same device.
func (c *conn) startContest(s registry.Session, held *registry.Held) {
	ctx, stop := context.WithTimeout(context.Background(), introductionWait)
	claim := &contest{introductions: make(chan registry.Introduction, 1), stop: stop, done: make(chan struct{})}
	c.contest = claim
	c.server.addTask()
	go func() {
		defer c.server.taskDone()
		defer close(claim.done)
		defer stop()
		defer c.recoverPanic()
		local, err := c.server.cfg.Pod.Hub.Obtain(ctx, s, c, held, claim.introductions)
		if err != nil {
			c.failOpen(s, err)
			return
		}
		c.setLocal(local)
		c.log().Info("device connected", "resumed", true, "replaced", held.Holder.Pod)
	}()
}

// endContest ends the contest of a connection that is gone, and waits for its goroutine.
func (c *conn) endContest() {
	if claim := c.contest; claim != nil {
		c.contest = nil
		claim.stop()
		<-claim.done
	}
}

// decideContest gives the contest the device's introduction and waits for the decision. It reports whether the
// connection has its session.
func (c *conn) decideContest(intro registry.Introduction) bool {
	claim := c.contest
	c.contest = nil
	claim.introductions <- intro
	<-claim.done // at the latest after introductionWait
	if c.local == nil || c.ending() != closeNone {
		return false
	}
	s := c.local.Session()
	summary := summarize(s, c.describe(s.Key), true)
	if summary.MessageCount > 0 || summary.Name != s.Name { // session_start did not say it
		c.summary = &summary
	}
	return true
}
