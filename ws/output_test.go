package ws_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

// TestLargeOutputs: what a tool says may be four megabytes long, however JSON escapes it; nothing else that a device
// sends may.
func TestLargeOutputs(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, output := range map[string]string{
		"plain": strings.Repeat("x", defaultMaxOutput), "escaped": strings.Repeat("\n", defaultMaxOutput),
		"too long": strings.Repeat("x", defaultMaxOutput+1), "too long, escaped": strings.Repeat("\n",
			defaultMaxOutput+1),
	} {
		t.Run(name, func(t *testing.T) {
			d := g.connectWithTools("big", "t")
			d.t = t
			done := g.call("big", "t", `{}`)
			id := d.expect("tool_call_request")["id"]
			text, err := json.Marshal(map[string]any{"type": "tool_result", "id": id, "output": output})
			must(t, err)
			d.send(string(text))
			got := receive(t, done)
			if strings.HasPrefix(name, "too long") {
				if !errors.Is(got.err, registry.CodeInvalidResult) {
					t.Errorf("%d bytes of output, %v", len(got.result.Output), got.err)
				}
				d.expectError("MESSAGE_TOO_BIG", "4194304 bytes")
				d.expectClose(ws.CloseTooBig)
				return
			}
			if got.err != nil || got.result.Output != output {
				t.Errorf("%d bytes of output, %v", len(got.result.Output), got.err)
			}
			d.expect("result_acknowledged")
			d.alive()
		})
	}
}
