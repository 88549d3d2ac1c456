package docker

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"
)

// A holder that a busy machine lets answer after seconds is waited for; one that does not answer is not.
func TestSlowHolder(t *testing.T) {
	for _, of := range []struct {
		takes time.Duration
		want  bool
	}{{5 * time.Second, true}, {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			b := &box{holder: client.HijackedResponse{Conn: ours}, counts: make(chan int)}
			go func() {
				defer close(b.counts)
				for lines := bufio.NewReader(theirs); ; {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
					time.Sleep(of.takes)
					b.counts <- ownProcesses
				}
			}()
			if err := b.settle(t.Context()); (err == nil) != of.want {
				t.Errorf("a holder that takes %s: %v", of.takes, err)
			}
			_ = ours.Close()
			for range b.counts {
			}
		})
	}
}
