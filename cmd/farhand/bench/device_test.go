package bench

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// silentServer accepts connections and says nothing. It reports each when it has been asked something.
func silentServer(t *testing.T) (addr string, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				conns <- struct{}{}
			}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String(), conns
}

// within fails the test when nothing comes.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing within a minute", what)
		panic("unreachable")
	}
}

func TestASwarmDoesNotHangOnASilentServer(t *testing.T) {
	addr, asked := silentServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		s, err := ConnectSwarm(ctx, "http://"+addr, "", "silent", 1, 1)
		if err == nil {
			s.Close()
		}
		ended <- err
	}()
	within(t, "a handshake", asked)
	cancel()
	if err := within(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestAHandshakeHasItsTime(t *testing.T) {
	addr, _ := silentServer(t)
	s := newSwarm(t.Context(), "", nil)
	defer s.Close()
	s.handshake = 50 * time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- (&device{swarm: s}).serve(addr, "silent") }()
	if err := within(t, "the end", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	if len(s.slots) != 0 {
		t.Error("the slot was not given back")
	}
}
