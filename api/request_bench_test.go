package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// BenchmarkCallRequest reads the body of a call.
func BenchmarkCallRequest(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		body := []byte(`{"args":{"text":"` + strings.Repeat("x", n) + `"},"timeout_ms":30000}`)
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for b.Loop() {
				if r, err := parseCall(body); err != nil || r.timeout != 30*time.Second {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkCallAnswer writes the answer to a call.
func BenchmarkCallAnswer(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		out := agent.Outcome{
			CallID: "8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", Duration: 12 * time.Millisecond,
			Session: registry.Session{Key: registry.Key{Tenant: registry.DefaultTenant, Session: "phone-1"}},
			Result:  registry.Result{Success: true, Output: strings.Repeat("x", n)},
		}
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			var body []byte
			for b.Loop() {
				body = appendAnswer(body[:0], &out)
			}
		})
	}
}

// BenchmarkGroupedPage encodes a page of the grouped listing as it is answered.
func BenchmarkGroupedPage(b *testing.B) {
	rows := make([]wire.GroupRow, 100)
	parameters := json.RawMessage(`{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}`)
	for i := range rows {
		rows[i] = wire.GroupRow{Tool: wire.Tool{
			Name: fmt.Sprintf("tool_%d", i), Description: "Reads something and returns it.", Enabled: true,
			Parameters: parameters, SchemaHash: strings.Repeat("0", 64),
		}, SourceType: sourceRemote, Sessions: 100_000}
	}
	h := &handler{}
	b.ReportAllocs()
	for b.Loop() {
		h.listTag("version", auth.Identity{Tenant: "default"}, "/api/tools", nil, false)
		if _, err := encode(wire.ToolGroupList{Tools: rows}); err != nil {
			b.Fatal(err)
		}
	}
}
