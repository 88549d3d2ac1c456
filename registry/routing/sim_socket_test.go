package routing_test

import (
	"slices"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// A connection as the hub of its pod uses it.

// Deliver implements routing.Conn.
func (c *simConn) Deliver(call routing.DeviceCall) error {
	c.mu.Lock()
	refused := c.closing || c.hushed || c.ended
	c.mu.Unlock()
	if refused {
		return registry.Errorf(registry.CodeNotConnected, "The connection is ending.")
	}
	c.sim.handed(call.ID, c)
	c.send(toDevice, simFrame{kind: "call", id: call.ID, call: call})
	return nil
}

// Cancel implements routing.Conn.
func (c *simConn) Cancel(callID, _ string) {
	if slices.Contains(c.device.caps, registry.CapabilityCancel) {
		c.send(toDevice, simFrame{kind: "cancel", id: callID})
	}
}

// Owner implements routing.Conn.
func (*simConn) Owner() share.Owner { return share.Owner{} }

// Pulse implements routing.Conn.
func (*simConn) Pulse() registry.Pulse { return registry.Pulse{} }

// Ping implements routing.Conn.
func (c *simConn) Ping(answered func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings = append(c.pings, answered)
	if len(c.pings) == 1 {
		go c.send(toDevice, simFrame{kind: "ping"})
	}
}

// Close implements routing.Conn.
func (c *simConn) Close(cause routing.CloseCause) { c.leave(string(cause)) }

// forget takes a connection that is over off the pod's list.
func (p *simPod) forget(c *simConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(other *simConn) bool { return other == c })
}
