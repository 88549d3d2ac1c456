package ws

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// benchSizes are payloads as they are called in the names of benchmarks.
var benchSizes = []struct {
	name string
	n    int
}{{"100B", 100}, {"10KB", 10_000}, {"1MB", 1_000_000}}

// BenchmarkFrameDecode decodes what a device sends: answers of several sizes, a registration, an acceptance.
func BenchmarkFrameDecode(b *testing.B) {
	frames := map[string]string{
		"tool_call_accepted": `{"type":"tool_call_accepted","id":"8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11"}`,
		"register_5_tools":   registerFrame(5),
	}
	for _, s := range benchSizes {
		frames["tool_result_"+s.name] = `{"type":"tool_result","id":"8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11","output":"` +
			strings.Repeat("x", s.n) + `","success":true}`
	}
	for name, frame := range frames {
		data := []byte(frame)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := decodeFrame(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFrameEncode encodes what a device is sent for a call.
func BenchmarkFrameEncode(b *testing.B) {
	for _, s := range benchSizes {
		call := routing.DeviceCall{
			ID: "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", Tool: "echo", Timeout: 30 * time.Second,
			Args: registry.MustJSON(`{"text":"` + strings.Repeat("x", s.n) + `"}`),
		}
		b.Run("tool_call_request_"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(s.n))
			for b.Loop() {
				toolCallRequestFrame(call)
			}
		})
	}
	b.Run("result_acknowledged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resultAcknowledgedFrame("8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", false)
		}
	})
	b.Run("tools_registered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			toolsRegisteredFrame(5, 5, nil, nil)
		}
	})
}

func registerFrame(tools int) string {
	var b strings.Builder
	b.WriteString(`{"type":"register_tools","tools":[`)
	for i := range tools {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool_%d","description":"Reads something and returns it.",`+
			`"parameters":{"type":"object",`+
			`"properties":{"what":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["what"]}}`, i)
	}
	b.WriteString(`]}`)
	return b.String()
}
