package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
	"github.com/farhand/farhand/ws/node"
	"github.com/farhand/farhand/ws/node/commands"
)

const nodeID = "n1"

func newMachine(protocol int, declared ...string) *node.Machine {
	return node.New(node.Config{
		NodeID: nodeID, Protocol: protocol,
		Catalog: func(plugins []json.RawMessage) *commands.Catalog {
			return commands.New(commands.Node{Platform: "linux", Commands: declared}, plugins, commands.Rules{})
		},
	})
}

// invoke starts a call of the tool of acme.look, and returns the frame.
func invoke(t testing.TB, m *node.Machine, id string) []byte {
	t.Helper()
	frame, err := m.Call(id, "acme_look", commands.Call{Args: registry.MustJSON(`{"at":"\"x\"\n"}`), Left: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func decode(t testing.TB, m *node.Machine, method, params string) any {
	t.Helper()
	frame, _, err := m.Decode([]byte(fmt.Sprintf(`{"type":"req","id":"r","method":%q,"params":%s}`, method, params)))
	if err != nil {
		t.Fatalf("%s %s: %v", method, params, err)
	}
	return frame
}

// sent returns the frames that effects send, which the published schema has checked.
func sent(t testing.TB, effects []node.Effect) (all []string) {
	t.Helper()
	schema, err := protocolSchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range effects {
		var frame []byte
		switch e := e.(type) {
		case node.Send:
			frame = e.Frame
		case node.Offer:
			frame = e.Answer(func(string) bool { return true })
		default:
			continue
		}
		if err := schema.Check(frame); err != nil {
			t.Errorf("%s: %v", frame, err)
		}
		all = append(all, string(frame))
	}
	return all
}

// A call becomes an event, and its answer a result: of payload, payloadJSON, or an error.
func TestCalls(t *testing.T) {
	schema, err := protocolSchema()
	if err != nil {
		t.Fatal(err)
	}
	for result, want := range map[string]string{
		`"ok":true,"payload":{"seen":1}`:                                   `"seen":1`,
		`"ok":true,"payloadJSON":"{\"seen\":2}"`:                           `"seen":2`,
		`"ok":true,"payload":{"seen":3},"payloadJSON":null`:                `"seen":3`,
		`"ok":true,"payloadJSON":{"seen":4}`:                               `"seen":4`,
		`"ok":false,"error":{"code":"CAMERA_DISABLED","message":"closed"}`: "closed",
		`"ok":false,"error":null`:                                          "",
		`"ok":true`:                                                        "",
		`"ok":true,"payloadJSON":""`:                                       "",
	} {
		m := newMachine(4, "acme.look")
		frame := invoke(t, m, "c1")
		if err := schema.Check(frame); err != nil || !strings.Contains(string(frame), `"command":"acme.look"`) {
			t.Errorf("%s: %v", frame, err)
		}
		a, ok := decode(t, m, "node.invoke.result", `{"id":"c1","nodeId":"n1",`+result+`}`).(*node.Answer)
		if !ok || a.Call != "c1" || a.Ask != "" {
			t.Fatalf("%s: %+v", result, a)
		}
		text := a.Result.Output + a.Result.Error
		if !strings.Contains(text, want) || a.Result.Success != strings.Contains(result, `"ok":true`) {
			t.Errorf("%s: %+v", result, a.Result)
		}
		ack := string(m.Acknowledge("c1", false))
		if !strings.Contains(ack, `"id":"r"`) || strings.Contains(ack, "ignored") {
			t.Errorf("acknowledged with %s", ack)
		}
		if m.Acknowledge("c1", false) != nil {
			t.Error("acknowledged twice")
		}
	}
}

// Calls of others, ended calls and malformed answers end no call.
func TestStrayAnswers(t *testing.T) {
	m := newMachine(4, "acme.look")
	invoke(t, m, "c1")
	for _, params := range []string{`{"id":"c2","nodeId":"n1","ok":true}`, `{"id":"","nodeId":"n1","ok":true}`} {
		r, ok := decode(t, m, "node.invoke.result", params).(*node.Request)
		if !ok {
			t.Fatalf("%s was taken", params)
		}
		if got := sent(t, m.Handle(r)); len(got) != 1 || !strings.Contains(got[0], `"ignored":true`) {
			t.Errorf("%s: %v", params, got)
		}
	}
	for _, params := range []string{
		`{"id":"c1","nodeId":"n2","ok":true}`, `{"id":"c1","nodeId":"n1"}`, `{"id":"c1","nodeId":"n1","ok":"yes"}`,
		`{"id":"c1","nodeId":"n1","ok":true,"payloadJSON":"{"}`, `[]`, `{"id":1,"nodeId":"n1","ok":true}`,
		`{"id":"c1","nodeId":"n1","ok":true,"payloadJSON":"` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `"}`,
	} {
		frame := []byte(`{"type":"req","id":"r","method":"node.invoke.result","params":` + params + `}`)
		got, _, err := m.Decode(frame)
		var bad *fields.Error
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v, %v", params, got, err)
		}
		answered := m.AnsweredCall(frame)
		if ours := strings.Contains(params, `"c1","nodeId":"n1"`); ours != (answered == "c1") {
			t.Errorf("%s answers the call %q", params, answered)
		}
	}
	if c := m.Cancel("c1"); !strings.Contains(string(c), `"invokeId":"c1"`) {
		t.Errorf("cancelled with %s", c)
	}
	if m.Cancel("c1") != nil {
		t.Error("cancelled twice")
	}
	if _, ok := decode(t, m, "node.invoke.result", `{"id":"c1","nodeId":"n1","ok":true}`).(*node.Request); !ok {
		t.Error("the answer to a cancelled call was taken")
	}
	if _, err := m.Call("c3", "other", commands.Call{}); err == nil {
		t.Error("a tool that the node does not offer was called")
	}
}

// Chunks that come early wait, within bounds. After those, a call's output ends.
func TestEarlyProgress(t *testing.T) {
	m := newMachine(4, "acme.look")
	invoke(t, m, "c1")
	report := func(seq int, chunk string) any {
		return decode(t, m, "node.invoke.progress",
			fmt.Sprintf(`{"invokeId":"c1","nodeId":"n1","seq":%d,"chunk":%q}`, seq, chunk))
	}
	if p := report(0, "a").(*node.Progress); len(p.Chunks) != 1 {
		t.Errorf("%+v", p)
	}
	if p := report(2, "c").(*node.Progress); len(p.Chunks) != 0 {
		t.Errorf("%+v", p)
	}
	if p := report(1, "b").(*node.Progress); strings.Join(p.Chunks, "") != "bc" {
		t.Errorf("%+v", p)
	}
	chunk := strings.Repeat("x", 16<<10)
	for seq := 4; seq < 4+16; seq++ { // 256 KiB
		if _, ok := report(seq, chunk).(*node.Progress); !ok {
			t.Fatalf("chunk %d was dropped", seq)
		}
	}
	invoke(t, m, "c2") // has the same bound
	if _, ok := decode(t, m, "node.invoke.progress",
		`{"invokeId":"c2","nodeId":"n1","seq":1,"chunk":"y"}`).(*node.Request); !ok {
		t.Error("more than 256 KiB wait")
	}
	m.End("c1")
	if _, ok := report(3, "d").(*node.Request); !ok {
		t.Error("an ended call has output")
	}
	invoke(t, m, "c3")
	for seq := 1; seq <= 128; seq++ {
		decode(t, m, "node.invoke.progress", fmt.Sprintf(`{"invokeId":"c3","nodeId":"n1","seq":%d,"chunk":"y"}`, seq))
	}
	if _, ok := decode(t, m, "node.invoke.progress",
		`{"invokeId":"c3","nodeId":"n1","seq":129,"chunk":"y"}`).(*node.Request); !ok {
		t.Error("129 chunks wait")
	}
	if _, ok := decode(t, m, "node.invoke.progress",
		`{"invokeId":"c3","nodeId":"n1","seq":0,"chunk":"y"}`).(*node.Request); !ok {
		t.Error("output goes on after a hole")
	}
}

// Tools of plug-ins replace those before. Nodes of the older version have none.
func TestPluginTools(t *testing.T) {
	tools := `{"tools":[{"pluginId":"acme","name":"look_up","description":"Looks up.","command":"acme.call",
		"parameters":{"type":"object","properties":{"word":{"type":"string"}}}}]}`
	for protocol, want := range map[int]int{4: 1, 3: 0} {
		m := newMachine(protocol, "acme.call")
		before := len(m.Catalog().Tools())
		effects := m.Handle(decode(t, m, "node.pluginTools.update", tools).(*node.Request))
		if _, offers := effects[0].(node.Offer); !offers || len(sent(t, effects)) != 1 {
			t.Errorf("effects: %+v", effects)
		}
		found := 0
		for _, tool := range m.Catalog().Tools() {
			if strings.Contains(string(tool.Definition), "Looks up.") {
				found++
			}
		}
		if found != want {
			t.Errorf("protocol %d: %d tools of plug-ins", protocol, found)
		}
		m.Handle(decode(t, m, "node.pluginTools.update", `{"tools":[]}`).(*node.Request))
		if after := len(m.Catalog().Tools()); after != before {
			t.Errorf("%d tools before, %d after", before, after)
		}
	}
	m := newMachine(4, "acme.call")
	answer := func(offers func(string) bool) string {
		effects := m.Handle(decode(t, m, "node.pluginTools.update", `{"tools":[{"pluginId":"p","name":"x","description":"d",
			"command":"undeclared"},{"pluginId":"p","name":"b","description":"d","command":"acme.call"},
			{"pluginId":"p","name":"a","description":"d","command":"acme.call"}]}`).(*node.Request))
		return string(effects[0].(node.Offer).Answer(offers))
	}
	if got := answer(func(tool string) bool { return tool != "a" }); strings.Contains(got, `"x"`) ||
		strings.Contains(got, `"a"`) || !strings.Contains(got, `"name":"b"`) {
		t.Errorf("the answer names what is not offered: %s", got)
	}
	if got := answer(func(string) bool { return false }); !strings.Contains(got, `"tools":[]`) {
		t.Errorf("nothing is offered: %s", got)
	}
	m = newMachine(4)
	got := sent(t, m.Handle(decode(t, m, "node.pluginTools.update", `{}`).(*node.Request)))
	if !strings.Contains(got[0], `"ok":false`) {
		t.Errorf("without tools: %v", got)
	}
}

// What real nodes send after their handshake is answered, and never with an error that makes them repeat it.
func TestRealNodesAreAnswered(t *testing.T) {
	requests := 0
	for name, lines := range recordings(t) {
		for _, line := range lines {
			var f frame
			if json.Unmarshal(line.Frame, &f) != nil || line.From != "node" || f.Method == "connect" {
				continue
			}
			m := newMachine(4, "acme.look")
			got, _, err := m.Decode(line.Frame)
			if err != nil {
				if strings.Contains(err.Error(), "nodeId mismatch") { // the recorded node has another id
					continue
				}
				t.Errorf("%s: %s: %v", name, f.Method, err)
				continue
			}
			r, ok := got.(*node.Request)
			if !ok {
				continue
			}
			if requests++; len(sent(t, m.Handle(r))) != 1 {
				t.Errorf("%s: %s is not answered", name, f.Method)
			}
		}
	}
	if requests == 0 {
		t.Error("the recordings have no request")
	}
}

// FuzzDecode: whatever a node sends is answered at most once, with valid frames, and ends at most its own calls.
func FuzzDecode(f *testing.F) {
	for _, lines := range recordings(f) {
		for _, line := range lines {
			if line.From == "node" {
				f.Add([]byte(line.Frame))
			}
		}
	}
	for _, params := range []string{
		`node.invoke.result","params":{"id":"c1","nodeId":"n1","ok":true,"payloadJSON":"{\"a\":[1,2]}"}`,
		`node.invoke.result","params":{"id":"c1","nodeId":"n1","ok":false,"error":{"code":"X","message":"y"}}`,
		`node.invoke.progress","params":{"invokeId":"c1","nodeId":"n1","seq":0,"chunk":"x"}`,
		`node.pluginTools.update","params":{"tools":[{"pluginId":"p","name":"t","description":"d",` +
			`"command":"acme.look"}]}`,
		`node.pending.ack","params":{"ids":["1"]}`,
	} {
		f.Add([]byte(`{"type":"req","id":"r","method":"` + params + `}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m := newMachine(4, "acme.look")
		invoke(t, m, "c1")
		answered := m.AnsweredCall(text)
		if answered != "" && answered != "c1" {
			t.Fatalf("answers %q", answered)
		}
		got, values, err := m.Decode(text)
		if values < 0 {
			t.Fatal("fewer than no values")
		}
		var bad *fields.Error
		switch got := got.(type) {
		case *node.Answer:
			if err != nil || got.Call != "c1" || m.Acknowledge("c1", true) == nil {
				t.Fatalf("%+v, %v", got, err)
			}
		case *node.Step:
			if got.Call != "c1" {
				t.Fatalf("%+v", got)
			}
		case *node.Progress:
			if got.Call != "c1" {
				t.Fatalf("%+v", got)
			}
		case *node.Request:
			if len(sent(t, m.Handle(got))) != 1 {
				t.Fatalf("%s is not answered once", text)
			}
		default:
			if err == nil || errors.As(err, &bad) && len(sent(t, []node.Effect{node.Send{Frame: m.Error(bad)}})) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
		}
	})
}
