package routing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// simConn is one connection: the socket between a device and a pod, and what package ws does at the pod's end. Frames
// keep their order. A connection that was cut at one end only is not known to be at the other for a while.
type simConn struct {
	sim    *simulation
	pod    *simPod
	device *simDevice
	id     string

	frames chan *simFrame // from the device, as the pod reads them
	gone   chan struct{}  // closed when the pod knows that the connection has ended

	mu      sync.Mutex
	sent    [2]time.Time // when the last frame arrives: at the device, at the pod
	count   [2]int
	broken  bool   // nothing arrives any more
	ended   bool   // gone is closed, or is about to be
	closing bool   // by the pod
	reason  string // why it closes
	hushed  bool
	local   *routing.LocalSession
	owed    int // answers that are not acknowledged
	pings   []func()
}

var _ routing.Conn = (*simConn)(nil)

// simFrame is what travels on a connection.
type simFrame struct {
	// kind is, to the device: start, connected, registered, call, cancel, ping, ack, close; to the pod: connect,
	// register, result, report, pong.
	kind   string
	token  string
	call   routing.DeviceCall
	id     string // of a call
	reason string
	said   registry.Introduction
	caps   []string
	result registry.Result
	turn   int
}

const (
	toDevice = iota
	toPod
)

// send has a frame arrive some time later.
func (c *simConn) send(way int, f simFrame) {
	if way == toDevice {
		c.pod.from(func() { c.travel(way, f) })
		return
	}
	c.travel(way, f)
}

func (c *simConn) travel(way int, f simFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return
	}
	c.count[way]++
	fate := c.sim.fates.of("frame", c.id, f.kind, fmt.Sprint(way, c.count[way]))
	at := time.Now().Add(fate.span(200*time.Microsecond, 5*time.Millisecond))
	if last := c.sent[way]; !at.After(last) {
		at = last.Add(time.Microsecond)
	}
	c.sent[way] = at
	time.AfterFunc(time.Until(at), func() {
		c.mu.Lock()
		broken := c.broken
		c.mu.Unlock()
		switch {
		case broken:
		case way == toDevice:
			if c.sim.tracing {
				c.sim.trace("%s: %s %s", c.id, f.kind, f.id)
			}
			c.device.receive(c, f)
		default:
			c.pod.to(func() { c.frames <- &f })
		}
	})
}

// cut ends the connection without a word. The pod finds out after some time.
func (c *simConn) cut(noticed time.Duration) {
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.endAfter(noticed)
}

// endAfter has the pod find out that the connection has ended.
func (c *simConn) endAfter(wait time.Duration) {
	// of several that end together, too
	wait += c.sim.fates.of("noticed", c.id).span(time.Microsecond, time.Millisecond)
	time.AfterFunc(wait, func() {
		if c.pod.isDead() {
			c.end()
			return
		}
		c.pod.to(c.end)
	})
}

func (c *simConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended, c.broken = true, true
		close(c.gone)
	}
}

// serve is the reader of the connection at the pod, from its beginning to its teardown.
func (c *simConn) serve(token string) {
	defer c.sim.work.Done()
	defer c.pod.forget(c)
	s := registry.Session{Key: c.device.key, Proofs: []string{registry.Proof("", token)}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	local, _, err := c.pod.pod.Hub.Open(ctx, s, c)
	cancel()
	held := (*registry.Held)(nil)
	var said *registry.Introduction
	var first simFrame
	switch {
	case errors.As(err, &held):
		c.send(toDevice, simFrame{kind: "start", token: token})
		local, said, first = c.contend(s, held)
	case err != nil:
		c.leave("unavailable")
	default:
		c.send(toDevice, simFrame{kind: "start", token: token})
	}
	if local == nil {
		c.leave("refused")
		<-c.gone
		return
	}
	c.mu.Lock()
	c.local = local
	c.mu.Unlock()
	if said != nil {
		c.introduce(first)
	}
	for f, ok := c.read(); ok; f, ok = c.read() {
		c.handle(f)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	local.Leave(ctx, c.back())
	c.sim.trace("%s is over", c.id)
}

// back returns for how long the device is expected to connect again.
func (c *simConn) back() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.closing:
		return registry.BreakWait
	case c.reason == string(routing.CloseDraining):
		return registry.ReturnWait
	default:
		return 0
	}
}

// read returns the next frame. What came before the end is read before the end.
func (c *simConn) read() (simFrame, bool) {
	select {
	case f := <-c.frames:
		return *f, true
	default:
	}
	select {
	case f := <-c.frames:
		return *f, true
	case <-c.gone:
		return simFrame{}, false
	}
}

// contend has it decided whether the device gets a session that another one has.
func (c *simConn) contend(
	s registry.Session, held *registry.Held,
) (*routing.LocalSession, *registry.Introduction, simFrame) {
	select {
	case <-c.gone: // while the store was asked
		if len(c.frames) == 0 {
			return nil, nil, simFrame{}
		}
	default:
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	said := make(chan registry.Introduction, 1)
	over := make(chan *routing.LocalSession, 1)
	go func() {
		local, err := c.pod.pod.Hub.Obtain(ctx, s, c, held, said)
		c.sim.trace("%s contends: %v", c.id, err)
		over <- local
	}()
	take := func(f *simFrame) (*routing.LocalSession, *registry.Introduction, simFrame) {
		said <- f.said
		return <-over, &f.said, *f
	}
	select {
	case f := <-c.frames: // before the end of the connection, if both are there
		return take(f)
	default:
	}
	select {
	case f := <-c.frames:
		return take(f)
	case <-c.gone:
		stop()
		return <-over, nil, simFrame{}
	case local := <-over:
		return local, nil, simFrame{}
	}
}

// introduce takes what the first frame says.
func (c *simConn) introduce(f simFrame) {
	c.local.Introduce(f.said)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := c.local.Update(ctx, func(s *registry.Session) { s.DeviceID, s.Capabilities = f.said.DeviceID, f.caps })
	if err != nil {
		c.leave("refused")
		return
	}
	c.send(toDevice, simFrame{kind: "connected"})
}

// handle takes one frame. Nothing that comes after the pod began to close the connection counts.
func (c *simConn) handle(f simFrame) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return
	}
	switch f.kind {
	case "connect":
		c.introduce(f)
	case "register":
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.local.PutTools(ctx, simVersions[f.turn%len(simVersions)], nil); err == nil {
			c.send(toDevice, simFrame{kind: "registered"})
		}
	case "report":
		n := 0.5
		_ = c.local.Progress(f.id, &n, nil, "half", "") // a refusal is for the device
	case "result":
		c.mu.Lock()
		c.owed++
		c.mu.Unlock()
		c.local.Complete(f.id, f.result, func(ignored bool) {
			c.mu.Lock()
			c.owed--
			c.mu.Unlock()
			if c.pod.isDead() {
				return // what its goroutines come to in the instant of its death, nobody hears
			}
			c.sim.acknowledge(ack{id: f.id, turn: f.turn, ignored: ignored, pod: c.pod.id})
			c.send(toDevice, simFrame{kind: "ack", id: f.id, turn: f.turn})
		})
	case "pong":
		c.mu.Lock()
		pings := c.pings
		c.pings = nil
		c.mu.Unlock()
		for _, answered := range pings {
			answered()
		}
	}
}

// leave ends the connection: the device hears why, and the pod stops to read soon.
func (c *simConn) leave(reason string) {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return
	}
	c.closing, c.reason = true, reason
	c.mu.Unlock()
	c.send(toDevice, simFrame{kind: "close", reason: reason})
	c.endAfter(c.sim.fates.of("farewell", c.id).span(6*time.Millisecond, 300*time.Millisecond))
}

// sendAway ends the connection of a pod that stops, once nothing is under way or now at the latest. In a hurry it takes
// no more calls.
func (c *simConn) sendAway(hush, now bool) {
	c.mu.Lock()
	c.hushed = c.hushed || hush
	busy := c.owed > 0 || c.local != nil && c.local.InFlight() > 0
	c.mu.Unlock()
	if !busy || now {
		c.leave(string(routing.CloseDraining))
	}
}
