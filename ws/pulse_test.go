package ws_test

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// The pod of a device measures how long a ping and its pong take, and when the last pong came. The store learns it with
// the next refresh, from devices of both protocols.
func TestPulses(t *testing.T) {
	t.Parallel()
	const slow = 40 * time.Millisecond // the least that a pong takes here
	const interval = 300 * time.Millisecond
	g := newGateway(t, func(c *ws.Config) {
		c.PingInterval, c.PongTimeout = interval, testTimeout
	})
	began := time.Now()
	for session, conn := range map[string]*websocket.Conn{
		"frames": g.connect("frames").conn,
		"mcp":    g.connectMCP("session_id=mcp", "lamp").conn,
	} {
		key := registry.Key{Tenant: registry.DefaultTenant, Session: session}
		if e, err := g.store.Entry(t.Context(), key); session == "frames" &&
			(err != nil || e.Pulse != registry.Pulse{}) && time.Since(began) < interval {
			t.Errorf("before the first pong: %+v, %v", e.Pulse, err)
		}
		answer := conn.PingHandler()
		conn.SetPingHandler(func(data string) error {
			time.Sleep(slow) // the way there and back
			return answer(data)
		})
		must(t, conn.SetReadDeadline(time.Time{}))
		go func() {
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					return
				}
			}
		}()
		var pulse registry.Pulse
		eventually(t, session+": the store has a pulse", func() bool {
			g.pod.HandleGap() // the pod refreshes its sessions
			e, err := g.store.Entry(t.Context(), key)
			pulse = e.Pulse
			return err == nil && pulse.RoundTrip >= slow // one before may not have been kept waiting
		})
		took := time.Since(began) + time.Millisecond
		if pulse.RoundTrip > took || pulse.At.Before(began) || pulse.At.After(time.Now()) {
			t.Errorf("%s: %+v", session, pulse)
		}
		first := pulse.At
		eventually(t, session+": the next pong", func() bool {
			g.pod.HandleGap()
			e, err := g.store.Entry(t.Context(), key)
			return err == nil && e.Pulse.At.After(first)
		})
	}
}
