package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// TestIdleLimitsOfBalancers (row 60): something between the device and the pod cuts connections that carry nothing for
// longer than its limit. Pings keep an idle device connected; the twin without pings is cut.
func TestIdleLimitsOfBalancers(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	pinging := startPod(t, "FARHAND_PING_INTERVAL=300ms")
	silent := startPod(t, "FARHAND_PING_INTERVAL=1h", "FARHAND_PONG_TIMEOUT=2h")
	kept := newIdleBalancer(t, strings.TrimPrefix(pinging.url, "http://"), limit)
	cut := newIdleBalancer(t, strings.TrimPrefix(silent.url, "http://"), limit)
	connectDevice(t, kept.url(), "idle", echoTool())
	connectDevice(t, cut.url(), "idle", echoTool(), client.WithSilence(time.Hour))
	eventually(t, waitLimit, "the device without pings is cut", func() bool { return cut.cut.Load() > 0 })
	waitFor(t.Context(), limit)
	if n := kept.cut.Load(); n > 0 {
		t.Errorf("the connection of a device that is pinged was cut %d times", n)
	}
	if a := callTool(t, pinging.url, "/api/sessions/idle/tools/echo/call", `{"args":{}}`); !a.Success {
		t.Errorf("%+v", a)
	}
}

// idleBalancer passes bytes on, and cuts connections on which neither side says anything for as long as its limit.
type idleBalancer struct {
	listener net.Listener
	to       string
	limit    time.Duration
	cut      atomic.Int64
	done     sync.WaitGroup
	closing  chan struct{}
}

func newIdleBalancer(t *testing.T, to string, limit time.Duration) *idleBalancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &idleBalancer{listener: l, to: to, limit: limit, closing: make(chan struct{})}
	b.done.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			b.done.Go(func() { b.pass(in) })
		}
	})
	t.Cleanup(func() {
		close(b.closing)
		l.Close()
		b.done.Wait()
	})
	return b
}

func (b *idleBalancer) url() string { return "http://" + b.listener.Addr().String() }

func (b *idleBalancer) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", b.to)
	if err != nil {
		return
	}
	defer out.Close()
	idle := time.NewTimer(b.limit)
	defer idle.Stop()
	said := make(chan struct{}, 1)
	ended := make(chan struct{}, 2)
	relay := func(to io.Writer, from io.Reader) {
		defer func() { ended <- struct{}{} }()
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case said <- struct{}{}:
			default:
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	b.done.Go(func() { relay(out, in) })
	b.done.Go(func() { relay(in, out) })
	for {
		select {
		case <-said:
			idle.Reset(b.limit)
		case <-idle.C:
			b.cut.Add(1)
			return
		case <-ended:
			return
		case <-b.closing:
			return
		}
	}
}

// TestBalancersThatCutLongConnections (row 61): the connections of a device are cut again and again. It comes back with
// its session and its tools each time, and no call that was not dispatched has run.
func TestBalancersThatCutLongConnections(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	proxy := newMutedProxy(t, strings.TrimPrefix(p.url, "http://"))
	device := startRawDevice(t, "cut", []string{"http://" + proxy.addr()}, echoWork)
	var answers []answer
	for range 8 {
		eventually(t, waitLimit, "the device is back", func() bool {
			a := callTool(t, p.url, "/api/sessions/cut/tools/work/call", `{"args":{}}`)
			answers = append(answers, a)
			return a.Success
		})
		proxy.cut()
		answers = append(answers, callTool(t, p.url, "/api/sessions/cut/tools/work/call", `{"args":{}}`))
	}
	device.stop()
	executed := device.executions()
	for _, a := range answers {
		if n := executed[a.CallID]; n > 1 || n > 0 && a.Dispatched == "no" || a.Success && n != 1 {
			t.Errorf("ran %d times: %+v", n, a)
		}
	}
	if device.connected < 8 {
		t.Errorf("it came back %d times", device.connected)
	}
}
