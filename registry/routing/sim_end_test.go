package routing_test

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
)

// checkEnd looks at what must hold when the faults have ended and nothing is left to happen.
func (s *simulation) checkEnd() {
	s.checkStep()
	s.mu.Lock()
	requests := slices.Clone(s.book.requests)
	s.mu.Unlock()
	for _, r := range requests {
		s.checkRequest(r)
	}
	s.checkFleet()
	s.probe()
	s.mu.Lock()
	pods := s.slots
	s.mu.Unlock()
	for _, p := range pods {
		if p == nil {
			continue
		}
		for what, n := range p.pod.Leftovers() {
			if n != 0 {
				s.violate("leak", "", "%s holds %d %s when all is over", p.id, n, what)
			}
		}
	}
}

// checkRequest: the caller has heard, what it heard is true now that all is known, and the record agrees.
func (s *simulation) checkRequest(r *request) {
	record, ok := s.record(r.id)
	events := s.events(r.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.book
	if r.heard == nil {
		if !during(b.kills, r.pod, r.asked, time.Now()) {
			s.violateLocked("told", r.id, "%s never heard, though %s lives", r.id, r.pod)
		}
	} else if r.heard.dispatched == registry.DispatchedYes && len(b.arrivals[r.heard.callID]) == 0 &&
		!s.lostOnTheWay(r.heard.callID) && !b.claimed(r) {
		s.violateLocked("dispatched", r.heard.callID, "%s was told that it reached its device, and it did not: %v",
			r.id, r.heard)
	}
	if ok {
		s.checkRecord(r, record)
	}
	last := -1
	for _, e := range events {
		if rank := e.Rank(); rank < last || rank == last && e.Type == registry.CallEventState {
			s.violateLocked("events", r.id, "%s: %s after an event of rank %d", e.Type, e.State, last)
		} else {
			last = rank
		}
	}
}

// lostOnTheWay reports whether a connection that was given the call has broken.
func (s *simulation) lostOnTheWay(callID string) bool {
	return slices.ContainsFunc(s.book.handed[callID], func(c *simConn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.broken
	})
}

// checkRecord: a record has ended, as its caller was told, with what the device said.
func (s *simulation) checkRecord(r *request, record registry.Record) {
	b := &s.book
	first := b.firstAnswer(r.id)
	switch {
	// it was created late, by a store that hung
	case !record.State.Final() && s.clock().Before(record.Deadline.Add(registry.OverdueGrace)):
	case !record.State.Final():
		s.violateLocked("record", r.id, "it is still %s when all is over", record.State)
	case !record.State.Answered():
	case first == nil:
		s.violateLocked("record", r.id, "it is %s, and no device answered", record.State)
	case record.Result != nil && record.Result.Output != "" && !b.mayBe(first, record.Result.Output):
		s.violateLocked("record", r.id, "it holds %q, the device's first answer was %q", record.Result.Output,
			first.output)
	}
	if reached := len(b.arrivals[r.id]); record.State.Final() && record.Dispatched == registry.DispatchedNo &&
		reached > 0 &&
		!b.wiped(r.asked, time.Now()) {
		s.violateLocked("dispatched", r.id, "it is %s, dispatched no, and it reached a device", record.State)
	}
	o := r.heard
	if o == nil || o.callID != r.id || o.accepted {
		return
	}
	soon := o.at.Add(10 * time.Second)
	if b.wiped(r.asked, time.Now()) && !record.State.Answered() {
		return // what is left is what was on its way when the store was emptied
	}
	if during(b.kills, r.pod, r.asked, soon) || during(b.ends, r.pod, r.asked, soon) && b.troubled(r.asked, soon) {
		return // the pod has gone, maybe before it could write down how the call ended
	}
	state := registry.StateFailed
	if o.success {
		state = registry.StateSucceeded
	}
	switch {
	case o.answered:
		// When it was cancelled, it had been answered already. A durable call whose time was up may have been answered
		// by the time its record was read.
		late := record.Late && r.plan.shape != shapeCancelled &&
			!(r.plan.durable() && o.at.Sub(r.asked) >= r.plan.timeout)
		if record.State != state || late && !b.troubled(r.asked, o.at.Add(5*time.Second)) {
			s.violateLocked("agrees", r.id, "its caller heard %v, its record is %s, late %v", o, record.State,
				record.Late)
		}
	case o.dispatched == registry.DispatchedUnknown && r.plan.keyed(): // it was told only that it is not known
	case record.State.Answered() && !record.Late:
		s.violateLocked("agrees", r.id, "its caller heard %v, its record is %s, in time", o, record.State)
	case o.dispatched == registry.DispatchedNo && record.Dispatched != registry.DispatchedNo && !b.claimed(r):
		s.violateLocked("agrees", r.id, "its caller heard %v, its record says dispatched %s", o, record.Dispatched)
	}
}

// checkFleet: every device is connected, and the store and the pods agree on where.
func (s *simulation) checkFleet() {
	listed := s.listed()
	s.mu.Lock()
	slots, devices := s.slots, s.devices[:simDevices]
	s.mu.Unlock()
	for _, d := range devices {
		d.mu.Lock()
		c, ready := d.conn, d.ready
		d.mu.Unlock()
		if c == nil || !ready {
			s.violate("connected", "", "%s is not", d.name)
			continue
		}
		if listed[d.key.Session] != c.pod.id {
			s.violate("fleet", "", "%s is connected to %s, the store says %q", d.name, c.pod.id, listed[d.key.Session])
		}
		for _, p := range slots {
			if p != nil && (p.pod.Hub.Get(d.key) != nil) != (p == c.pod) {
				s.violate("fleet", "", "%s is connected to %s, %s thinks otherwise", d.name, c.pod.id, p.id)
			}
		}
	}
}

// probe has every pod call every device.
func (s *simulation) probe() {
	var probes []string
	for slot := range simPods {
		for device := range simDevices {
			plan := callPlan{
				nonce: fmt.Sprintf("probe%d%d", slot, device), shape: shapeSync, pod: slot, device: device,
				timeout: 2*time.Second + time.Duration(device),
			}
			s.mu.Lock()
			s.plans[plan.nonce] = plan
			s.mu.Unlock()
			time.Sleep(s.fateOf("probe").span(0, time.Millisecond))
			s.request(plan, slot, plan.nonce)
			probes = append(probes, plan.nonce)
		}
	}
	time.Sleep(3 * time.Second)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range probes {
		if r := s.book.byID[id]; r == nil || r.heard == nil || !r.heard.answered {
			heard := "nothing"
			if r != nil && r.heard != nil {
				heard = r.heard.String()
			}
			s.violateLocked("reachable", id, "a call when all is well came to: %s", heard)
		}
	}
}
