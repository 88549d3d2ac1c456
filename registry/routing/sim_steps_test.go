package routing_test

import (
	"fmt"
	"time"
)

// What the steps of a plan do.

// do does what a step says.
func (s *simulation) do(st step) {
	now := time.Now()
	until := now.Add(st.lasts)
	f := s.fates.of("step", fmt.Sprint(st.number))
	switch st.kind {
	case stepCall:
		s.mu.Lock()
		s.plans[st.call.nonce] = st.call
		s.mu.Unlock()
		s.ask(st.call)
	case stepKill, stepDrain, stepStop:
		s.breakPod(st, f)
	case stepDrop, stepLeave, stepMove, stepRival, stepUpdate:
		s.moveDevice(st, f)
	case stepEmpty:
		s.empty()
		until = now.Add(simLease)
	case stepNet:
		s.breakUntil(&s.sky.badNet, until)
		time.AfterFunc(st.lasts+f.span(0, time.Millisecond), s.gap)
	case stepAway:
		s.breakUntil(&s.sky.away, until)
	case stepFreeze:
		s.breakUntil(&s.sky.frozen, until)
	case stepSlow:
		s.breakUntil(&s.sky.slow, until)
	case stepUnsure:
		s.breakUntil(&s.sky.unsure, until)
	}
	switch st.kind {
	case stepEmpty, stepNet, stepAway, stepFreeze, stepSlow, stepUnsure:
		s.note(&s.book.storms, span{from: now, to: until})
	}
}

// breakUntil has something be broken for a while.
func (s *simulation) breakUntil(what *time.Time, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what = until
}

// gap tells the pods that messages may have been missed.
func (s *simulation) gap() {
	s.mu.Lock()
	slots := s.slots
	s.mu.Unlock()
	for _, p := range slots {
		if p != nil {
			p.to(p.pod.HandleGap)
		}
	}
}

func (s *simulation) breakPod(st step, f *fate) {
	s.mu.Lock()
	p := s.slots[st.pod]
	s.mu.Unlock()
	if p == nil {
		return
	}
	switch st.kind {
	case stepStop:
		p.stop(st.lasts)
	case stepKill:
		p.kill()
		s.after(st.lasts+f.span(0, time.Millisecond), func() { s.startAfter(p) })
	default:
		s.work.Go(func() {
			p.drain()
			time.Sleep(st.lasts/4 + f.span(0, time.Millisecond))
			s.startAfter(p)
		})
	}
}

func (s *simulation) moveDevice(st step, f *fate) {
	d := s.devices[st.device]
	d.mu.Lock()
	c := d.conn
	d.mu.Unlock()
	noticed := f.span(0, time.Millisecond)
	if f.chance(0.5) {
		noticed = f.span(0, 4*time.Second)
	}
	switch st.kind {
	case stepDrop:
		if c != nil {
			d.lose(c, noticed)
		}
	case stepLeave:
		d.leave(noticed)
		time.AfterFunc(st.lasts, d.comeBack)
	case stepMove:
		if c != nil {
			d.connect()
			time.AfterFunc(f.span(0, time.Second), func() { c.cut(noticed) })
		}
	case stepRival:
		s.rival(d, st)
	case stepUpdate:
		d.update()
	}
}

// rival has another device ask for the session of d.
func (s *simulation) rival(d *simDevice, st step) {
	r := &simDevice{sim: s, name: fmt.Sprintf("rival%d", st.number), key: d.key, id: "rival",
		stopped: make(map[string]bool)}
	s.mu.Lock()
	s.devices = append(s.devices, r)
	s.mu.Unlock()
	r.connect()
	time.AfterFunc(st.lasts, func() { r.leave(0) })
}

// update has the device define its tools otherwise.
func (d *simDevice) update() {
	d.mu.Lock()
	d.version++
	c, version := d.conn, d.version
	d.mu.Unlock()
	if c != nil {
		c.send(toPod, simFrame{kind: "register", turn: version})
	}
}

// leave has the device go, and stay away.
func (d *simDevice) leave(noticed time.Duration) {
	d.mu.Lock()
	d.away = true
	c := d.conn
	d.conn, d.ready, d.offered = nil, false, time.Time{}
	d.mu.Unlock()
	if c != nil {
		c.cut(noticed)
	}
}

// comeBack ends the absence of the device.
func (d *simDevice) comeBack() {
	d.mu.Lock()
	d.away = false
	d.mu.Unlock()
	d.connectSoon(time.Millisecond, 100*time.Millisecond)
}
