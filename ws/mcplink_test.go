package ws

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// FuzzMCPMessage: no message of a device that speaks MCP makes the decoder panic, and each is something that can be
// handled, or a mistake that can be named. What a tool is called here is always a name that a tool can have.
func FuzzMCPMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":"mine","result":{"tools":[{"name":"a/b","inputSchema":{"type":"object"}}],"nextCursor":"x"}}`,
		`{"jsonrpc":"2.0","id":"c","result":{"content":[{"type":"text","text":"x"},{"type":"image","data":"AA==",` +
			`"mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","blob":"AA=="}},` +
			`{"type":"resource_link","uri":"a:b","name":"n"}],"structuredContent":{"a":1},"isError":true}}`,
		`{"jsonrpc":"2.0","id":"c","error":{"code":-32602,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"c","progress":1,"message":"m"}}`,
		`{"type":"hello","transport":"websocket","features":{"mcp":true}}`,
		`{"type":"mcp","session_id":"s","payload":{"jsonrpc":"2.0","id":7,"result":{"content":[]}}}`,
		`{"type":"listen","state":"start"}`, `[]`, `{"type":"mcp"}`, `{"jsonrpc":"2.0","id":"c","result":7}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, envelope bool) {
		m := &mcpLink{envelope: envelope, pending: `"mine"`, numbers: callNumbers{calls: map[int64]string{7: "seven"}}}
		answered := m.answeredCall(data)
		frame, err := m.decode(data)
		var bad *frameError
		if err != nil && (!errors.As(err, &bad) || bad.message == "") && !errors.Is(err, CloseInvalidUTF8) {
			t.Fatalf("%q: %v", data, err)
		}
		switch frame := frame.(type) {
		case nil:
			if err == nil {
				t.Fatalf("%q is nothing", data)
			}
		case *toolResultFrame:
			if frame.ID == "" || !envelope && m.hasEnvelope() == envelope && answered != frame.ID {
				t.Fatalf("%q answers %q, and %q if it is malformed", data, frame.ID, answered)
			}
			if frame.result.Structured.Len() > 0 && !strictjson.Valid(frame.result.Structured.Raw()) {
				t.Fatalf("%q: structured output that is not JSON", data)
			}
		case *mcpFrame:
			if frame.own {
				checkMCPTools(t, frame)
			}
		}
	})
}

func checkMCPTools(t *testing.T, frame *mcpFrame) {
	f, err := resultFields(frame.result)
	if err != nil {
		return
	}
	for _, raw := range f.array("tools") {
		theirs, definition, bad := nativeDefinition(raw, true)
		if name := toolNameOf(theirs); theirs != "" && !registry.ValidToolName(name) {
			t.Fatalf("%q is called %q", theirs, name)
		}
		if bad == nil && !strictjson.Valid(definition) {
			t.Fatalf("%q becomes %q", raw, definition)
		}
	}
}

// The gateway waits for a bounded time for the answer to a request of its own.
func TestMCPOwnRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, late := &mcpLink{}, 0
		m.newRequest()
		m.arm(func() { late++ })
		m.disarm()
		m.newRequest()
		m.arm(func() { late++ })
		m.arm(func() { late += 10 })
		if !m.waits() {
			t.Error("nothing is under way")
		}
		synctest.Wait()
		time.Sleep(mcpAnswerWait)
		synctest.Wait()
		if late != 10 || m.waits() || m.pending != "" {
			t.Errorf("late: %d, %q is under way", late, m.pending)
		}
	})
}

// mcpConn is a connection without a socket whose device has been sent its first message.
func mcpConn(m *mcpLink) *conn {
	c, r := &conn{server: &Server{log: slog.New(slog.DiscardHandler)}, mcp: m}, &recorder{}
	c.out.writer, c.out.limit = r, 1<<20
	r.out = &c.out
	c.out.start(nil)
	r.next()
	m.opened = true
	return c
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asks is the id of the own request that is under way.
func (m *mcpLink) asks() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending
}

// What a device says of its list while it does not answer for it is not forgotten.
func TestMCPChangesWhileAListIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mcpConn(&mcpLink{ready: true, stage: mcpReady})
		noError(t, c.listTools())
		asked := c.mcp.asks()
		c.mcp.talk.Lock()
		c.mcp.changed = true // as listAgain notes it
		c.mcp.talk.Unlock()
		time.Sleep(mcpAnswerWait)
		synctest.Wait()
		if !c.mcp.waits() || c.mcp.asks() == asked || c.mcp.asks() == "" || c.mcp.changed {
			t.Errorf("the list is not asked for again: %q after %q", c.mcp.asks(), asked)
		}
		noError(t, c.ownAnswer(&mcpFrame{id: []byte(asked), own: true, result: []byte("7")})) // nobody looks
		time.Sleep(mcpAnswerWait)
		synctest.Wait()
		if c.mcp.waits() {
			t.Error("it is asked for once more although nothing has changed")
		}

		noError(t, c.listTools())
		asked, c.mcp.changed = c.mcp.asks(), true
		noError(t, c.ownAnswer(&mcpFrame{id: []byte(asked), own: true, failed: &mcpFailure{code: -32603}}))
		if !c.mcp.waits() || c.mcp.asks() == asked || c.mcp.changed {
			t.Error("the list is not asked for again after a refusal")
		}
		c.mcp.stop()
		noError(t, c.listTools())
		if c.mcp.waits() {
			t.Error("a connection that has ended waits for an answer")
		}
	})
}

// A voice device that says hello again and again without an answer is late all the same.
func TestMCPHelloAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mcpConn(&mcpLink{voice: true, envelope: true, ready: true}) // ready: it is only told that it is late
		noError(t, c.beginMCP())
		time.Sleep(mcpAnswerWait - time.Second)
		noError(t, c.greetMCP())
		first := c.mcp.asks()
		time.Sleep(mcpAnswerWait - time.Second)
		noError(t, c.greetMCP())
		if !c.mcp.waits() || c.mcp.asks() == first {
			t.Error("it is not asked again")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c.mcp.waits() {
			t.Error("it may be as late as it likes")
		}
	})
}

// A call keeps its number while it is in flight, however many calls before it were never answered. Those keep theirs
// for a late answer, a bounded number of them.
func TestMCPNumbersOfCalls(t *testing.T) {
	m := &mcpLink{envelope: true, session: "s"}
	waiting := string(m.newCallID("waiting"))
	for i := range 3 * maxEndedCalls {
		young := string(m.newCallID("young"))
		call := strconv.Itoa(i)
		id := string(m.newCallID(call))
		if cancel := string(m.cancelFrame(call, "late")); !strings.Contains(cancel, `"requestId":`+id+",") {
			t.Fatalf("the call %s is cancelled by %s", id, cancel)
		}
		if m.callOf(id) != call || m.callOf(young) != "young" || m.callOf(waiting) != "waiting" {
			t.Fatalf("after %d calls without an answer: %q, %q, %q", i, m.callOf(id), m.callOf(young),
				m.callOf(waiting))
		}
		m.forget(young)
		if m.callOf(young) != "" || m.cancelFrame("young", "late") != nil {
			t.Fatal("an answered call still has its number")
		}
	}
	for range 2 * maxEndedCalls {
		m.forget(string(m.newCallID("answered")))
	}
	var young []string
	for i := range 4 {
		young = append(young, string(m.newCallID("young "+strconv.Itoa(i))))
	}
	for i, id := range young {
		if want := "young " + strconv.Itoa(i); m.callOf(id) != want {
			t.Errorf("the number %s is of %q, want %q", id, m.callOf(id), want)
		}
		m.forget(id)
	}
	if have := len(m.numbers.calls); have != maxEndedCalls+1 || len(m.numbers.of) != 1 {
		t.Errorf("%d numbers are kept, %d of them of calls in flight", have, len(m.numbers.of))
	}
	for _, number := range slices.Clone(m.numbers.ended) {
		m.forget(strconv.FormatInt(number, 10)) // answered late
	}
	m.newCallID("unsent")
	m.notSent("unsent")
	m.forget(waiting)
	if n := &m.numbers; len(n.calls)+len(n.of)+len(n.ended) != 0 {
		t.Errorf("numbers of calls that are over: %+v", n)
	}
}

// A number fits in 32 bits, and no two calls in flight have the same one.
func TestMCPNumbersBeginAgain(t *testing.T) {
	n := callNumbers{last: math.MaxInt32 - 2}
	seen := make(map[int64]bool)
	for i := range 5 {
		number := n.add(strconv.Itoa(i))
		if number < 1 || number > math.MaxInt32 || seen[number] {
			t.Errorf("call %d has the number %d", i, number)
		}
		seen[number] = true
	}
	n.last = math.MaxInt32
	if again := n.add("again"); seen[again] {
		t.Errorf("two calls have the number %d", again)
	}
}

// Voice devices are sent messages in envelopes.
func TestMCPEnvelope(t *testing.T) {
	m := &mcpLink{envelope: true, session: "s"}
	frame := string(m.callFrame(routing.DeviceCall{ID: "x", Tool: "t"}))
	if !strings.HasPrefix(frame, `{"type":"mcp","session_id":"s","payload":{"jsonrpc":"2.0","id":`) ||
		!strictjson.Valid([]byte(frame)) || !strings.Contains(frame, `"arguments":{}`) {
		t.Errorf("frame %s", frame)
	}
}
