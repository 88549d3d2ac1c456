package routing_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// simVersions are the tools of every device, as its versions define them.
var simVersions = [][]registry.ToolSpec{
	{simTool("play", "1"), simTool("work", "1")}, {simTool("play", "2"), simTool("work", "2")},
}

// simTools are the tools of a device that has not been updated.
var simTools = simVersions[0]

func simTool(name, version string) registry.ToolSpec {
	spec, err := registry.ToolSpec{Name: name, Description: version}.Normalize()
	if err != nil {
		panic(err)
	}
	return spec
}

// simDevice is a phone: it connects to some pod, comes back when it loses its connection, runs tools and writes down
// what reaches it.
type simDevice struct {
	sim  *simulation
	name string
	key  registry.Key
	id   string // what it calls itself; empty: nothing
	caps []string

	mu      sync.Mutex
	away    bool      // it does not want to be connected
	conn    *simConn  // nil while it has none
	ready   bool      // its tools are registered
	offered time.Time // when they were last, if they are not; zero if it left
	tries   int       // connections so far
	version int       // of its app: how it defines its tools
	tokens  []string  // that it was given
	answers []*deviceAnswer
	stopped map[string]bool // calls that were cancelled
}

// deviceAnswer is an answer that is not acknowledged.
type deviceAnswer struct {
	id     string
	result registry.Result
}

// newDevices returns devices of every kind.
func (s *simulation) newDevices() {
	const resume, token, cancel = registry.CapabilityResume, registry.CapabilityResumeToken, registry.CapabilityCancel
	for i, d := range [simDevices]*simDevice{
		{},
		{caps: []string{resume, token, cancel}, id: "phone1"},
		{caps: []string{resume}, id: "phone2"},
		{caps: []string{token, cancel}},
	} {
		d.sim, d.name, d.stopped = s, fmt.Sprintf("device%d", i), make(map[string]bool)
		d.key = registry.Key{Tenant: simTenant, Session: fmt.Sprintf("s%d", i)}
		s.devices = append(s.devices, d)
	}
}

func (d *simDevice) can(capability string) bool { return slices.Contains(d.caps, capability) }

// connectSoon opens a connection after some time, unless the device has one by then.
func (d *simDevice) connectSoon(low, high time.Duration) {
	wait := d.sim.fateOf("comeback", d.name).span(low, high)
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		wanted := !d.away && d.conn == nil && !d.sim.isOver()
		d.mu.Unlock()
		if wanted {
			d.connect()
		}
	})
}

// connect opens a connection to some pod, in place of the one there is. It is given up when it takes too long.
func (d *simDevice) connect() {
	d.mu.Lock()
	d.tries++
	f := d.sim.fates.of("connect", d.name, fmt.Sprint(d.tries))
	c := &simConn{
		sim: d.sim, device: d, id: fmt.Sprintf("%s#%d", d.name, d.tries), frames: make(chan *simFrame, 1000),
		gone: make(chan struct{}),
	}
	d.mu.Unlock()
	p := d.sim.near(f.pick(simPods))
	if p == nil {
		d.mu.Lock()
		d.conn = nil
		d.mu.Unlock()
		d.connectSoon(100*time.Millisecond, time.Second)
		return
	}
	c.pod = p
	d.mu.Lock()
	d.lackTools()
	d.conn = c
	d.mu.Unlock()
	time.AfterFunc(f.span(time.Millisecond, 20*time.Millisecond), func() { p.to(func() { p.accept(c) }) })
	time.AfterFunc(f.span(6*time.Second, 8*time.Second), func() {
		d.mu.Lock()
		late := d.conn == c && !d.ready
		d.mu.Unlock()
		if late {
			d.lose(c, 0)
		}
	})
}

// accept begins to serve a connection.
func (p *simPod) accept(c *simConn) {
	p.mu.Lock()
	refused := p.dead || p.closing
	if !refused {
		p.conns = append(p.conns, c)
		p.sim.work.Add(1)
	}
	p.mu.Unlock()
	if refused {
		time.AfterFunc(p.sim.fates.of("refused", c.id).span(time.Millisecond, 5*time.Millisecond),
			func() { c.device.lose(c, 0) })
		return
	}
	p.sim.trace("%s at %s", c.id, p.id)
	go c.serve("token of " + c.id)
}

// lose has the device lose a connection, which the pod notices after some time, and come back.
func (d *simDevice) lose(c *simConn, noticed time.Duration) {
	c.cut(noticed)
	d.mu.Lock()
	mine := d.conn == c
	if mine {
		d.lackTools()
	}
	d.mu.Unlock()
	if mine {
		d.connectSoon(20*time.Millisecond, 500*time.Millisecond)
	}
}

// lackTools has the device be without a connection, and without tools. The lock is held.
func (d *simDevice) lackTools() {
	if d.ready {
		d.offered = time.Now()
	}
	d.conn, d.ready = nil, false
}

// lastOffer returns when the device offered its tools last; zero: it left meanwhile.
func (d *simDevice) lastOffer() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return time.Now()
	}
	return d.offered
}

// receive takes one frame. It runs at the instant the frame arrives, and does not wait.
func (d *simDevice) receive(c *simConn, f simFrame) {
	d.mu.Lock()
	current := d.conn == c
	switch f.kind {
	case "start":
		d.tokens = append(d.tokens, f.token)
	case "registered":
		d.ready = d.ready || current
	case "ack":
		d.answers = slices.DeleteFunc(d.answers, func(a *deviceAnswer) bool { return a.id == f.id && f.turn == 1 })
	case "cancel":
		d.stopped[f.id] = true
	}
	again := slices.Clone(d.answers)
	version := d.version
	said := registry.Introduction{DeviceID: d.id}
	if n := len(d.tokens); d.can(registry.CapabilityResumeToken) && n > 1 {
		said.Token = d.tokens[n-2] // of the connection before; the last one is this one's
	}
	d.mu.Unlock()
	switch f.kind {
	case "start":
		c.send(toPod, simFrame{kind: "connect", said: said, caps: d.caps})
	case "connected":
		c.send(toPod, simFrame{kind: "register", turn: version})
		if d.can(registry.CapabilityResume) {
			for _, a := range again {
				c.send(toPod, simFrame{kind: "result", id: a.id, result: a.result, turn: 1})
			}
		}
	case "call":
		d.run(c, f.call)
	case "ping":
		c.send(toPod, simFrame{kind: "pong"})
	case "close":
		d.closed(c, f.reason)
	}
}

// closed is what a device does when a pod ends its connection: it comes back, but not at once if another one has its
// session.
func (d *simDevice) closed(c *simConn, reason string) {
	d.mu.Lock()
	mine := d.conn == c
	if mine {
		d.lackTools()
	}
	d.mu.Unlock()
	if !mine {
		return
	}
	if reason == string(routing.CloseReplaced) || reason == "refused" {
		d.connectSoon(time.Second, 3*time.Second)
	} else {
		d.connectSoon(10*time.Millisecond, 300*time.Millisecond)
	}
}

// run carries out a call and answers.
func (d *simDevice) run(c *simConn, call routing.DeviceCall) {
	nonce := strings.TrimSuffix(strings.TrimPrefix(call.Args.String(), `{"nonce":"`), `"}`)
	d.sim.arrive(arrival{id: call.ID, nonce: nonce, session: d.key.Session, device: d.name, tool: call.Tool,
		at: time.Now(), pod: c.pod.id})
	plan := d.sim.planOf(nonce)
	f := d.sim.fates.of("work", d.name, call.ID, c.id)
	work := plan.work + f.span(time.Microsecond, time.Millisecond)
	for n := range plan.reports {
		time.AfterFunc(work*time.Duration(n+1)/time.Duration(plan.reports+1), func() {
			c.send(toPod, simFrame{kind: "report", id: call.ID})
		})
	}
	forgets := f.chance(0.5)
	time.AfterFunc(work, func() { d.answer(c, call.ID, plan, forgets) })
}

// answer sends what the tool returned. A second answer says something else.
func (d *simDevice) answer(c *simConn, id string, plan callPlan, forgets bool) {
	result := registry.Result{Success: !plan.fails, Output: d.name + " " + id + " 1"}
	d.mu.Lock()
	current := d.conn
	switch {
	case d.stopped[id] && forgets:
		result.Success = false
	case current == c || d.can(registry.CapabilityResume):
	case forgets || current == nil || !d.ready: // what ran for a connection that is gone
		d.mu.Unlock()
		return
	}
	if d.can(registry.CapabilityResume) {
		d.answers = append(d.answers, &deviceAnswer{id, result})
	}
	ready := d.ready
	d.mu.Unlock()
	d.sim.note(&d.sim.book.answers, said{id: id, output: result.Output, success: result.Success})
	if current == nil || current != c && !ready { // it is sent with the others when it is connected
		return
	}
	current.send(toPod, simFrame{kind: "result", id: id, result: result, turn: 1})
	if plan.twice && current == c && result.Success != plan.fails {
		second := registry.Result{Success: true, Output: d.name + " " + id + " 2"}
		time.AfterFunc(plan.later, func() { c.send(toPod, simFrame{kind: "result", id: id, result: second, turn: 2}) })
	}
}
