package ws

import (
	"errors"
	"log/slog"
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
		m := &mcpLink{envelope: envelope, pending: `"mine"`, calls: map[int64]string{7: "seven"}}
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
		theirs, definition, bad := nativeDefinition(raw)
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

// Numbers of calls are remembered until they are answered, and no more than a bounded number of them.
func TestMCPNumbersOfCalls(t *testing.T) {
	m := &mcpLink{envelope: true, session: "s"}
	var first, last string
	for i := range 10 * maxNumberedCalls {
		id := string(m.newCallID(strconv.Itoa(i)))
		if i == 0 {
			first = id
		}
		last = id
		if again := string(m.callID(strconv.Itoa(i))); again != id {
			t.Fatalf("the call has two numbers, %s and %s", id, again)
		}
	}
	if len(m.calls) != maxNumberedCalls || m.callID("0") != nil || m.callOf(first) != "" || m.callOf(last) == "" {
		t.Errorf("%d numbers are kept", len(m.calls))
	}
	m.forget(last)
	if m.callOf(last) != "" {
		t.Error("an answered call has its number yet")
	}
	frame := string(m.callFrame(routing.DeviceCall{ID: "x", Tool: "t"}))
	if !strings.HasPrefix(frame, `{"type":"mcp","session_id":"s","payload":{"jsonrpc":"2.0","id":`) ||
		!strictjson.Valid([]byte(frame)) || !strings.Contains(frame, `"arguments":{}`) {
		t.Errorf("frame %s", frame)
	}
}
