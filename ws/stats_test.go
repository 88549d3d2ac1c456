package ws_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// TestStatsCount what goes over sockets by what it is. Types that devices make up are counted as one.
func TestStatsCount(t *testing.T) {
	g := newGateway(t)
	d := g.connectWithTools("s1", "t")
	for i := range 20 {
		must(t, d.conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"made_up_%d"}`, i)))
	}
	must(t, d.conn.WriteMessage(websocket.BinaryMessage, []byte("x")))
	must(t, d.conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"get_registered_tools"}`)))
	if status, _, _ := g.refusal(query("session_id", "s2"),
		http.Header{"Authorization": {"Bearer wrong"}}); status != http.StatusUnauthorized {
		t.Fatalf("status %d", status)
	}
	eventually(t, "everything is counted", func() bool {
		s := g.server.Stats()
		return s.Received["other"] == 21 && s.Received["get_registered_tools"] == 1 &&
			s.Received["register_tools"] == 1 &&
			s.Sent["session_start"] == 1 && s.Sent["registered_tools"] == 1 && s.Sent["error"] == 21 && s.Open == 1 &&
			s.Opened == 1 && s.Refused[registry.CodeUnauthenticated] == 1 && s.BytesIn > 500 && s.BytesOut > 500
	})
	must(t, d.conn.Close())
	eventually(t, "the end is counted",
		func() bool { s := g.server.Stats(); return s.Closed["gone"] == 1 && s.Open == 0 })
	s := g.server.Stats()
	for what, have := range map[string][2][]string{
		"received": {ws.ReceivedTypes(), slices.Collect(maps.Keys(s.Received))},
		"sent":     {ws.SentTypes(), slices.Collect(maps.Keys(s.Sent))},
		"closed":   {ws.CloseReasons(), slices.Collect(maps.Keys(s.Closed))},
	} {
		slices.Sort(have[0])
		slices.Sort(have[1])
		if !slices.Equal(have[0], have[1]) {
			t.Errorf("%s: announced %q, counted %q", what, have[0], have[1])
		}
	}
}

// TestBothPoolsForDecodingAreCounted: frames of both kinds may wait for a slot.
func TestBothPoolsForDecodingAreCounted(t *testing.T) {
	g := newGateway(t)
	defer ws.HoldDecoding(g.server)()
	for _, name := range []string{"decoding", "decoding_large"} {
		if g.server.Pools()[name].Held == 0 {
			t.Errorf("nothing is held of %s", name)
		}
	}
}

// TestAcknowledgementsAreCountedByHowTheyLeft: one that waits leaves with the next call, the last one alone.
func TestAcknowledgementsAreCountedByHowTheyLeft(t *testing.T) {
	g := newGateway(t)
	d := g.connectWithTools("s1", "echo")
	acknowledged := func() (together, alone int64) {
		s := g.server.Stats()
		return s.AcknowledgedTogether, s.AcknowledgedAlone
	}
	calls := int64(0)
	eventually(t, "an acknowledgement leaves with a call", func() bool {
		done := g.call("s1", "echo", `{}`)
		request := d.next()
		for request["type"] == "result_acknowledged" {
			request = d.next()
		}
		d.send(fmt.Sprintf(`{"type":"tool_result","id":%q,"output":"x"}`, request["id"]))
		must(t, await(t, done).err)
		calls++
		eventually(t, "the acknowledgement is queued or sent", func() bool {
			together, alone := acknowledged()
			return together+alone+g.server.Stats().OutboxFrames >= calls
		})
		together, _ := acknowledged()
		return together > 0
	})
	eventually(t, "the last one leaves alone", func() bool {
		together, alone := acknowledged()
		return together+alone == calls && alone > 0
	})
}
