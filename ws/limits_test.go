package ws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/ws"
)

// The defaults of ws.Config, in bytes.
const (
	defaultMaxFrame  = 1 << 20
	defaultMaxOutput = 4 << 20
)

// frameOf returns a frame of exactly n bytes.
func frameOf(n int) string {
	const head, tail = `{"type":"abort","x":"`, `"}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestFrameLimit(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	const fits, announced, cut = "fits", "announced", "cut"
	for _, tc := range []struct {
		name, want string
		size       int
	}{
		{"one less", fits, defaultMaxFrame - 1},
		{"exactly", fits, defaultMaxFrame},
		{"one more", announced, defaultMaxFrame + 1},
		{"twice", announced, 2 * defaultMaxFrame},
		{"as long as an answer", announced, 2*defaultMaxOutput + 64<<10},
		{"longer", cut, 2*defaultMaxOutput + 64<<10 + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := g.connect(fmt.Sprintf("big-%d", tc.size)) // what one session has sent it has spent
			d.t = t
			d.send(frameOf(tc.size))
			switch tc.want {
			case fits:
				d.expect("abort_ack")
			case announced:
				d.expectError("MESSAGE_TOO_BIG", "1048576 bytes")
				d.expectClose(ws.CloseTooBig)
			case cut:
				d.expectCloseFrame(ws.CloseTooBig.Code(), "") // the WebSocket library's
			}
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
		must(t, pinger.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(testTimeout)))
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

// bigTool is a definition of a little more than n bytes.
func bigTool(name string, n int) string {
	return fmt.Sprintf(`{"name":%q,"parameters":{"description":%q}}`, name, strings.Repeat("x", n))
}

// register sends definitions and returns the answer and what was rejected.
func (d *device) register(tools ...string) (got map[string]any, rejected []any) {
	d.t.Helper()
	d.send(`{"type":"register_tools","tools":[` + strings.Join(tools, ",") + `]}`)
	got = d.expect("tools_registered")
	rejected, _ = got["rejected"].([]any)
	return got, rejected
}

func TestBytesOfAllDefinitionsAreBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Admission = newAdmission(t, agent.AdmissionLimits{MaxToolBytes: 10_000})
	})
	d := g.connect("collector")
	got, rejected := d.register(bigTool("first", 4000), bigTool("second", 4000), bigTool("third", 4000))
	if got["registered"] != 2.0 || len(rejected) != 1 {
		t.Fatalf("tools_registered: %v", got)
	}
	if r := rejected[0].(map[string]any); r["name"] != "third" ||
		!strings.Contains(r["reason"].(string), "10000 bytes") {
		t.Fatalf("rejected: %v", r)
	}
	// A smaller version of one that is there makes room.
	if got, _ := d.register(bigTool("first", 100), bigTool("third", 4000)); got["registered"] != 3.0 ||
		got["rejected"] != nil {
		t.Fatalf("tools_registered: %v", got)
	}
}

func TestRegisteringAllTheTimeIsRejected(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("restless")
	const tools, size = 4, 50 << 10
	rejected := 0
	// 8 MB of ever-changing schemas; at once 2 MiB are allowed, and then 32 KiB a second.
	for round := 0; round < 40 && rejected < tools; round++ {
		var all []string
		for i := range tools {
			all = append(all, bigTool(fmt.Sprintf("tool_%d", i), size+round))
		}
		_, dropped := d.register(all...)
		dropped = slices.DeleteFunc(dropped, func(one any) bool { // a busy machine says so, and has looked at nothing
			return strings.Contains(one.(map[string]any)["reason"].(string), "too busy")
		})
		rejected += len(dropped)
		if len(dropped) > 0 && !strings.Contains(dropped[0].(map[string]any)["reason"].(string),
			"too much in a short time") {
			t.Fatalf("rejected: %v", dropped[0])
		}
		if round < 9 && rejected > 0 {
			t.Fatalf("%d rejected in round %d", rejected, round)
		}
	}
	if rejected < tools {
		t.Fatalf("%d rejected", rejected)
	}
	d.alive()
}

// A list of tools may be very much longer than the question for it.
func TestAskingForToolsAllTheTimeIsRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) {
		c.Admission = newAdmission(t, agent.AdmissionLimits{MaxToolBytes: 100_000})
	})
	d := g.connect("curious")
	d.register(bigTool("one", 45_000), bigTool("other", 45_000))
	const ask = `{"type":"get_registered_tools"}`
	answered := 0
	for ; answered < 100; answered++ { // two at once, and more after a while on a busy machine
		d.send(ask)
		if got := d.next(); got["type"] == "error" {
			if got["code"] != "RATE_LIMITED" || !strings.Contains(got["message"].(string), "tools") {
				t.Errorf("got %v", got)
			}
			break
		}
	}
	if answered < 2 || answered == 100 {
		t.Errorf("asked %d times", answered)
	}
	d.send(`{"type":"abort"}`)
	d.expect("abort_ack")
}

// TestWaitToDecodeHasADeadline: a long frame whose turn to be decoded never comes costs its connection, and does not
// hold it for ever.
func TestWaitToDecodeHasADeadline(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MessageTimeout = 200 * time.Millisecond })
	release := ws.HoldDecoding(g.server)
	defer release()
	d := g.connect("long")
	d.send(`{"type":"connect","device_name":"` + strings.Repeat("a", 32<<10) + `"}`)
	d.expectClose(ws.CloseCrowded)
	short := g.connect("short")
	short.alive()
}
