package node_test

import (
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/commands"
)

// BenchmarkCall is the gateway's part of a call: the invocation, the decoding of its result, and the acknowledgement.
func BenchmarkCall(b *testing.B) {
	m := newMachine(4, "acme.look")
	args := registry.MustJSON(`{"at":"x"}`)
	result := []byte(`{"type":"req","id":"1","method":"node.invoke.result","params":{"id":"c1","nodeId":"n1",` +
		`"ok":true,"payload":{"seen":[1,2,3]}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Call("c1", "acme_look", commands.Call{Args: args, Left: time.Second}); err != nil {
			b.Fatal(err)
		}
		if _, _, err := m.Decode(result); err != nil {
			b.Fatal(err)
		}
		m.Acknowledge("c1", false)
	}
}
