package ws_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws"
)

// offeredBytes returns what connections hold of the pod's pool of offered tools.
func offeredBytes(pod *routing.Pod) int64 { return pod.Pools()["offered_bytes"].Held }

// What a node publishes beyond what a session may offer is not kept: the admission rejects it, but its connection lives
// for days.
func TestPublishedToolsOfANodeAreNotKept(t *testing.T) {
	g := newGateway(t)
	large := strings.Repeat("x", 2<<20)
	node := measure(t, 3, func(n int) {
		p := g.connectNode(newKey(t), "acme.call")
		var tools []string
		for i := range 8 {
			tools = append(tools, fmt.Sprintf(
				`{"pluginId":"acme","name":"tool%d","description":"%d%s","command":"acme.call"}`, i, n, large))
		}
		f := p.ask("node.pluginTools.update", `{"tools":[`+strings.Join(tools, ",")+`]}`)
		if payload, _ := f["payload"].(map[string]any); fmt.Sprint(payload["tools"]) != "[]" {
			t.Errorf("answered %.200v", f)
		}
	})
	if node.bytes > 10<<20 {
		t.Errorf("a node keeps %.0f bytes of tools that are not offered", node.bytes)
	}
}

// What a node declares counts as what its tenant offers, once for all nodes that are alike, and no longer than they are
// connected.
func TestCatalogsOfNodesCount(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var commands []string
	for i := range 400 {
		commands = append(commands, fmt.Sprintf("acme.%0100d", i))
	}
	first := g.connectNode(newKey(t), commands...)
	one := offeredBytes(g.pod)
	if one < 400<<10 {
		t.Errorf("a node with 400 commands, of which %d are offered, holds %d bytes", 128, one)
	}
	second := g.connectNode(newKey(t), commands...)
	if two := offeredBytes(g.pod); two > one+one/10 {
		t.Errorf("two nodes that are alike hold %d bytes, one of them %d", two, one)
	}
	f := first.ask("node.pluginTools.update", `{"tools":[{"pluginId":"acme","name":"tool","command":"`+commands[0]+
		`","description":"`+strings.Repeat("x", 1000)+`"}]}`)
	if f["ok"] != true {
		t.Errorf("answered %v", f)
	}
	if three := offeredBytes(g.pod); three < one+one/2 {
		t.Errorf("with tools of plug-ins the nodes hold %d bytes, before %d", three, one)
	}
	must(t, first.conn.Close())
	must(t, second.conn.Close())
	eventually(t, "the nodes left nothing", func() bool { return offeredBytes(g.pod) == 0 })
}

// The names that tools have at an MCP device are kept as long as its connection, so they count.
func TestNamesOfToolsAtADeviceCount(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("%s %d", strings.Repeat("x", 200), i)) // a space: they are renamed
	}
	p := g.connectMCP("session_id=lamp", names...)
	eventually(t, "the names count", func() bool { return offeredBytes(g.pod) > 300<<10 })
	must(t, p.conn.Close())
	eventually(t, "they left nothing", func() bool { return offeredBytes(g.pod) == 0 })
}

// The limit of an output is also that of its structured form, and of a failure's text.
func TestNoAnswerIsLongerThanAnOutput(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	large := strings.Repeat("y", 3*limit)
	t.Run("a node's structured content", func(t *testing.T) {
		t.Parallel()
		for name, cfg := range map[string]func(*ws.Config){
			"as long as a message": func(c *ws.Config) { c.MaxFrame, c.MaxOutput = limit, limit },
			"longer":               func(c *ws.Config) { c.MaxFrame, c.MaxOutput = limit/2, limit },
		} {
			g := newGateway(t, cfg)
			p := g.connectNode(newKey(t), "acme.look", "mcp.tools.call.v1")
			p.ask("node.pluginTools.update", `{"tools":[{"pluginId":"m","name":"look","command":"mcp.tools.call.v1",`+
				`"description":"d","mcp":{"server":"s","tool":"look"}}]}`)
			done := g.call(p.key.ID, "look", `{}`)
			id, _ := p.invoked("mcp.tools.call.v1")
			p.result(id, `"ok":true,"payload":{"content":[{"type":"text","text":"short"}],"structuredContent":{"a":"`+
				large+`"}}`)
			if o := await(t, done); registry.AsError(o.err).Code != registry.CodeInvalidResult {
				t.Errorf("%s: %d bytes, %v", name, len(o.result.Structured.Raw()), o.err)
			}
		}
	})
	t.Run("an MCP device's failure", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(c *ws.Config) { c.MaxFrame, c.MaxOutput = limit/2, limit })
		p := g.connectMCP("session_id=lamp", "look")
		g.offersMCP("lamp", "look")
		done := g.call("lamp", "look", `{}`)
		p.refuse(p.asked("tools/call"), 1, large[:3*limit/2])
		if o := await(t, done); o.err == nil {
			t.Errorf("a failure with %d bytes", len(o.result.Output))
		}
	})
}
