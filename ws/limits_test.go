package ws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
)

// frameOf returns a frame of exactly n bytes.
func frameOf(n int) string {
	const head, tail = `{"type":"abort","x":"`, `"}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestFrameLimit(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, tc := range []struct {
		name  string
		size  int
		fits  bool
		limit int
	}{
		{name: "one less", size: ws.DefaultMaxFrame - 1, fits: true},
		{name: "exactly", size: ws.DefaultMaxFrame, fits: true},
		{name: "one more", size: ws.DefaultMaxFrame + 1},
		{name: "eight times", size: 8 * ws.DefaultMaxFrame},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := g.connect("big")
			d.t = t
			d.send(frameOf(tc.size))
			if tc.fits {
				d.expect("abort_ack")
				return
			}
			d.expectClose(ws.CloseTooBig)
		})
	}
	g.connect("after").alive()
}

func TestFrameLimitHoldsForFragments(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxFrame = 4096 })
	for _, tc := range []struct {
		size int
		fits bool
	}{{4096, true}, {4097, false}} {
		dialer := websocket.Dialer{WriteBufferSize: 16} // every 16 bytes a fragment
		d := g.dialWith(&dialer, "session_id=pieces")
		d.expect("session_start")
		w, err := d.conn.NextWriter(websocket.TextMessage)
		must(t, err)
		_, err = w.Write([]byte(frameOf(tc.size)))
		must(t, err)
		must(t, w.Close())
		if tc.fits {
			d.expect("abort_ack")
		} else {
			d.expectClose(ws.CloseTooBig)
		}
	}
}

func TestTooManyFramesClose(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 0.001, 5 })
	d := g.connect("flood")
	for range 5 {
		d.send(`{"type":"abort"}`)
		d.expect("abort_ack")
	}
	d.send(`{"type":"abort"}`)
	d.expectClose(ws.CloseRate)

	pinger := g.connect("pinger")
	for range 6 {
		must(t, pinger.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)))
	}
	pinger.expectClose(ws.CloseRate)
}

func TestAnswersDoNotCountAsFlood(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 0.001, 5 })
	d := g.connectWithTools("busy", "echo")
	for range 20 {
		done := g.call("busy", "echo", `{}`)
		id := d.expect("tool_call_request")["id"].(string)
		d.send(`{"type":"tool_call_accepted","id":"` + id + `"}`)
		d.send(`{"type":"tool_result","id":"` + id + `","output":"x"}`)
		d.expect("result_acknowledged")
		must(t, await(t, done).err)
	}
}
