package ws

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/ws/mcp"
)

// A timer fires once, unless it was stopped or a later one began, and never after the end of its connection.
func TestMCPTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, fired := &mcpLink{}, []int(nil)
		start := func(turn int) { l.startTimer(turn, func(turn int) { fired = append(fired, turn) }) }
		start(1)
		l.stopTimer(false)
		start(2)
		start(4)
		start(3) // which came late
		time.Sleep(mcp.AnswerWait)
		synctest.Wait()
		if len(fired) != 1 || fired[0] != 4 {
			t.Errorf("fired: %v", fired)
		}
		start(5)
		l.stopTimer(true)
		start(6)
		time.Sleep(mcp.AnswerWait)
		synctest.Wait()
		if len(fired) != 1 {
			t.Errorf("fired after the end: %v", fired)
		}
	})
}
