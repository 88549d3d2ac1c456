package mcp

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
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
		m := &Machine{envelope: envelope, pending: `"mine"`, numbers: numbers{calls: map[int64]string{7: "seven"}}}
		answered := m.AnsweredCall(data)
		message, err := m.Decode(data)
		var bad *fields.Error
		if err != nil && (!errors.As(err, &bad) || bad.Message == "") && !errors.Is(err, fields.ErrUTF8) {
			t.Fatalf("%q: %v", data, err)
		}
		switch msg := message.(type) {
		case nil:
			if err == nil {
				t.Fatalf("%q is nothing", data)
			}
		case *Result:
			if msg.Call == "" || !envelope && m.HasEnvelope() == envelope && answered != msg.Call {
				t.Fatalf("%q answers %q, and %q if it is malformed", data, msg.Call, answered)
			}
			if msg.Result.Structured.Len() > 0 && !strictjson.Valid(msg.Result.Structured.Raw()) {
				t.Fatalf("%q: structured output that is not JSON", data)
			}
		case *Message:
			if msg.own {
				checkTools(t, msg)
			}
		}
	})
}

func checkTools(t *testing.T, msg *Message) {
	var bad *fields.Error
	result, _ := fields.Open(msg.result, "", &bad)
	if result == nil {
		return
	}
	for _, raw := range result.Array("tools") {
		theirs, definition, bad := convert(raw, true)
		if name := nameOf(theirs); theirs != "" && !registry.ValidToolName(name) {
			t.Fatalf("%q is called %q", theirs, name)
		}
		if bad == nil && !strictjson.Valid(definition) {
			t.Fatalf("%q becomes %q", raw, definition)
		}
	}
}

// driven is a machine whose effects are carried out: what it sends is kept, and tools are stored when the test says so.
type driven struct {
	*Machine
	t      *testing.T
	asked  string // the last request, by its method
	id     string // of the last request
	turn   int    // of the timer; zero: it is stopped
	late   int    // the last turn that was started
	offer  *Offer
	retain *Retain
	closed bool
}

func drive(t *testing.T, cfg Config) *driven {
	cfg.MaxToolBytes, cfg.MaxTools = 1<<20, 1024
	d := &driven{Machine: New(cfg), t: t}
	d.do(d.Begin())
	return d
}

func (d *driven) do(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			var m struct {
				ID      json.RawMessage
				Method  string
				Payload struct {
					ID     json.RawMessage
					Method string
				}
			}
			if err := json.Unmarshal(e.Message, &m); err != nil {
				d.t.Fatalf("%s: %v", e.Message, err)
			}
			if m.Payload.Method != "" {
				m.ID, m.Method = m.Payload.ID, m.Payload.Method
			}
			if m.Method != "" && m.ID != nil {
				d.asked, d.id = m.Method, string(m.ID)
			}
		case StartTimer:
			d.turn, d.late = e.Turn, e.Turn
		case StopTimer:
			d.turn = 0
		case Offer:
			d.offer = &e
		case Retain:
			d.retain = &e
		case Close:
			d.closed = true
		}
	}
}

// says passes a message in.
func (d *driven) says(message string) {
	d.t.Helper()
	decoded, err := d.Decode([]byte(message))
	if err != nil {
		d.t.Fatalf("%s: %v", message, err)
	}
	if m, ok := decoded.(*Message); ok {
		d.do(d.Handle(m))
	}
}

// answers answers the last request.
func (d *driven) answers(result string) {
	d.t.Helper()
	d.says(`{"jsonrpc":"2.0","id":` + d.id + `,"result":` + result + `}`)
}

// timeIsOver lets the timer fire.
func (d *driven) timeIsOver() {
	turn := d.turn
	d.turn = 0
	d.do(d.Late(turn))
}

const (
	anInitialized = `{"protocolVersion":"2025-11-25"}`
	aTool         = `{"tools":[{"name":"a/b","inputSchema":{"type":"object"}}]}`
	listChanged   = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
)

// store stores what the machine offers.
func (d *driven) store() {
	for _, raw := range d.offer.Tools {
		d.Tool(raw)
	}
	d.UseNames()
	d.do(d.Registered())
}

// driveReady drives a machine to the end of its first list.
func driveReady(t *testing.T) *driven {
	d := drive(t, Config{Session: "s"})
	d.answers(anInitialized)
	d.answers(aTool)
	d.store()
	d.do(d.Listed([]registry.ToolSpec{{Name: "a_b"}}, false))
	if d.turn != 0 || d.waiting || d.list != nil || d.retain.Listed["a_b"] != "a/b" {
		t.Fatalf("after the first list: %+v", d)
	}
	return d
}

// The gateway waits for a bounded time for the answer to a request of its own.
func TestMCPOwnRequestsEnd(t *testing.T) {
	d := drive(t, Config{Session: "s"})
	if d.asked != methodInitialize || d.turn == 0 {
		t.Fatalf("at the beginning: %+v", d)
	}
	first := d.turn
	d.answers(anInitialized)
	if d.asked != methodListTools || d.turn == first {
		t.Fatalf("after initialize: %+v", d)
	}
	d.do(d.Late(first))
	if d.closed {
		t.Error("a timer that was replaced counts")
	}
	d.timeIsOver()
	if !d.closed || d.waiting || d.pending != "" {
		t.Errorf("a device that never answers: %+v", d)
	}
}

// A device that has listed its tools keeps them, whatever it does not answer later.
func TestMCPListsThatAreLate(t *testing.T) {
	d := driveReady(t)
	d.says(listChanged)
	asked := d.id
	d.says(listChanged) // while it does not answer for its list
	if d.id != asked {
		t.Error("it is asked twice at once")
	}
	d.timeIsOver()
	if d.closed || d.id == asked || d.turn == 0 || d.changed {
		t.Errorf("the list is not asked for again: %q after %q", d.id, asked)
	}
	d.says(`{"jsonrpc":"2.0","id":` + asked + `,"result":{"tools":[]}}`) // the request that was given up
	d.timeIsOver()
	if d.closed || d.turn != 0 {
		t.Error("it is asked for once more although nothing has changed")
	}

	d.says(listChanged)
	asked = d.id
	d.says(listChanged)
	d.says(`{"jsonrpc":"2.0","id":` + asked + `,"error":{"code":-32603,"message":"not now"}}`)
	if d.id == asked || d.turn == 0 || d.changed {
		t.Error("the list is not asked for again after a refusal")
	}
}

// The time of a list may be over while its tools are being stored. The new list waits for that, whether they are stored
// or not.
func TestMCPListsThatAreLateWhileTheyAreStored(t *testing.T) {
	for _, stored := range []bool{true, false} {
		d := driveReady(t)
		d.says(listChanged)
		d.says(listChanged)
		asked := d.id
		d.answers(strings.TrimSuffix(aTool, "}") + `,"nextCursor":"two"}`)
		d.timeIsOver()
		if d.id != asked || d.turn != 0 {
			t.Fatal("the list is asked for while another one is stored")
		}
		if stored {
			d.store()
		} else {
			d.do(d.Failed())
		}
		if d.id == asked || d.turn == 0 || d.changed || len(d.list.theirs) != 0 {
			t.Errorf("stored: %v; then %+v", stored, d)
		}
	}
}

// A cursor may be as long as a message. It is gone when the list goes on or has ended, also if its tools could not be
// stored.
func TestMCPCursorsAreNotKept(t *testing.T) {
	for _, cursor := range []string{"two", strings.Repeat("x", 1<<20)} {
		for _, stored := range []bool{true, false} {
			d := driveReady(t)
			d.says(listChanged)
			d.answers(strings.TrimSuffix(aTool, "}") + `,"nextCursor":"` + cursor + `"}`)
			if stored {
				d.store()
			} else {
				d.do(d.Failed())
			}
			if d.cursor != "" {
				t.Errorf("%d bytes of a cursor are kept; stored: %v", len(d.cursor), stored)
			}
		}
	}
}

// Tools that could not be stored leave the request open, until its time is over.
func TestMCPListsThatCannotBeStored(t *testing.T) {
	d := drive(t, Config{Session: "s"})
	d.answers(anInitialized)
	d.answers(aTool)
	d.do(d.Failed())
	if d.turn == 0 || d.pending == "" || d.retain != nil {
		t.Errorf("after an offer: %+v", d)
	}
	d.answers(aTool)
	d.store()
	d.do(d.Failed())
	if d.turn != 0 || d.list != nil || d.listed {
		t.Errorf("after the end of a list: %+v", d)
	}
	d.says(listChanged)
	if d.asked != methodListTools || d.turn == 0 {
		t.Error("it is not listed again")
	}
}

// A voice device that says hello again and again without an answer is late all the same.
func TestMCPHelloAgainAndAgain(t *testing.T) {
	d := drive(t, Config{Session: "s", Voice: true})
	if d.asked != "" || d.turn == 0 {
		t.Fatalf("before the hello: %+v", d)
	}
	turn := d.turn
	d.says(`{"type":"hello"}`)
	first := d.id
	if d.turn == turn {
		t.Error("the hello does not count as an answer")
	}
	turn = d.turn
	d.says(`{"type":"hello"}`)
	if d.turn != turn || d.id == first || d.asked != methodInitialize {
		t.Error("it is not asked again, or it may be as late as it likes")
	}
}

// A call keeps its number while it is in flight, however many calls before it were never answered. Those keep theirs
// for a late answer, a bounded number of them.
func TestMCPNumbersOfCalls(t *testing.T) {
	newCallID := func(m *Machine, call string) string {
		id, _, _ := strings.Cut(strings.SplitN(string(m.Call(call, "t", nil)), `"id":`, 2)[1], ",")
		return id
	}
	callOf := func(m *Machine, id string) string {
		_, call := m.requestOf([]byte(id))
		return call
	}
	m := New(Config{Session: "s", Voice: true})
	waiting := newCallID(m, "waiting")
	for i := range 3 * maxEndedCalls {
		young := newCallID(m, "young")
		call := strconv.Itoa(i)
		id := newCallID(m, call)
		if cancel := string(m.Cancel(call, "late")); !strings.Contains(cancel, `"requestId":`+id+",") {
			t.Fatalf("the call %s is cancelled by %s", id, cancel)
		}
		if callOf(m, id) != call || callOf(m, young) != "young" || callOf(m, waiting) != "waiting" {
			t.Fatalf("after %d calls without an answer: %q, %q, %q", i, callOf(m, id), callOf(m, young),
				callOf(m, waiting))
		}
		m.forget([]byte(young))
		if callOf(m, young) != "" || m.Cancel("young", "late") != nil {
			t.Fatal("an answered call still has its number")
		}
	}
	for range 2 * maxEndedCalls {
		m.forget([]byte(newCallID(m, "answered")))
	}
	var young []string
	for i := range 4 {
		young = append(young, newCallID(m, "young "+strconv.Itoa(i)))
	}
	for i, id := range young {
		if want := "young " + strconv.Itoa(i); callOf(m, id) != want {
			t.Errorf("the number %s is of %q, want %q", id, callOf(m, id), want)
		}
		m.forget([]byte(id))
	}
	if have := len(m.numbers.calls); have != maxEndedCalls+1 || len(m.numbers.of) != 1 {
		t.Errorf("%d numbers are kept, %d of them of calls in flight", have, len(m.numbers.of))
	}
	for _, number := range slices.Clone(m.numbers.ended) {
		m.forget(strconv.AppendInt(nil, number, 10)) // answered late
	}
	newCallID(m, "unsent")
	m.NotSent("unsent")
	m.forget([]byte(waiting))
	if n := &m.numbers; len(n.calls)+len(n.of)+len(n.ended) != 0 {
		t.Errorf("numbers of calls that are over: %+v", n)
	}
}

// A number fits in 32 bits, and no two calls in flight have the same one.
func TestMCPNumbersBeginAgain(t *testing.T) {
	n := numbers{last: math.MaxInt32 - 2}
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
	m := New(Config{Session: "s", Voice: true})
	frame := string(m.Call("x", "t", nil))
	if !strings.HasPrefix(frame, `{"type":"mcp","session_id":"s","payload":{"jsonrpc":"2.0","id":`) ||
		!strictjson.Valid([]byte(frame)) || !strings.Contains(frame, `"arguments":{}`) {
		t.Errorf("frame %s", frame)
	}
}
