package docker

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"
)

// fakeContainer returns a container whose holder answers what count says. The test calls end.
func fakeContainer(count func() int) (b *runningContainer, end func()) {
	ours, theirs := net.Pipe()
	b = &runningContainer{holder: client.HijackedResponse{Conn: ours}, counts: make(chan int)}
	go func() {
		defer close(b.counts)
		for lines := bufio.NewReader(theirs); ; {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
			b.counts <- count()
		}
	}()
	return b, func() {
		_ = ours.Close()
		for range b.counts {
		}
	}
}

// A holder that a busy machine lets answer after seconds is waited for; one that does not answer is not.
func TestSlowHolder(t *testing.T) {
	for takes, want := range map[time.Duration]bool{5 * time.Second: true, time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			b, end := fakeContainer(func() int {
				time.Sleep(takes)
				return ownProcesses
			})
			defer end()
			if err := b.settle(t.Context(), counts); (err == nil) != want {
				t.Errorf("a holder that takes %s: %v", takes, err)
			}
		})
	}
}

// The processes of a container that starts have longer to be there than those of a command to be gone.
func TestSlowStart(t *testing.T) {
	for tries, want := range map[int]bool{startCounts: true, counts: false} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			b, end := fakeContainer(func() int {
				if time.Since(began) < 5*time.Second {
					return ownProcesses - 1
				}
				return ownProcesses
			})
			defer end()
			if err := b.settle(t.Context(), tries); (err == nil) != want {
				t.Errorf("with %d tries: %v", tries, err)
			}
		})
	}
}
