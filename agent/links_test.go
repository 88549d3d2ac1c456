package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// TestLocalPartsBecomeLinks: parts of a local tool that are too long to be inline are read by a link, in the answer and
// in the record; one that is over the budget is described.
func TestLocalPartsBecomeLinks(t *testing.T) {
	const large = registry.MaxInlinePart + 1
	files, err := blobs.Open(t.Context(), blobs.Config{
		URL: "file://" + t.TempDir(), Store: memory.New(memory.Options{}), TenantBytes: registry.BlobShare * large,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.Files = files })
	part := func(n int) registry.Part {
		return registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Data: bytes.Repeat([]byte("x"), n)}
	}
	clips := localTool{spec("t", ""), func(context.Context, json.RawMessage) (registry.Result, error) {
		return registry.Result{Success: true, Parts: []registry.Part{part(10), part(large), part(large)}}, nil
	}}
	once := func(r *agent.Request) { r.IdempotencyKey = "k" }
	out, err := h.call(t.Context(), clips, once)
	p := out.Result.Parts
	if err != nil || len(p) != 3 || len(p[0].Data) != 10 || p[0].URL != "" || registry.InlineSize(p) != 10 ||
		p[1].Size != large || p[2].Size != large || p[2].URL != "" {
		t.Fatalf("%d parts, %d bytes inline, %v", len(p), registry.InlineSize(p), err)
	}
	secret, _ := strings.CutPrefix(p[1].URL, registry.PathBlob)
	b, err := files.Find(t.Context(), secret)
	if err != nil {
		t.Fatalf("%q: %v", p[1].URL, err)
	}
	body, err := files.Open(t.Context(), b)
	if err != nil {
		t.Fatalf("%q: %v", p[1].URL, err)
	}
	got, err := io.ReadAll(body)
	if err != nil || body.Close() != nil || !bytes.Equal(got, part(large).Data) || b.Tenant != "default" ||
		b.CallID != out.CallID {
		t.Errorf("%d bytes of %+v, %v", len(got), b, err)
	}
	again, err := h.call(t.Context(), clips, once)
	if err != nil || !again.Replayed || len(again.Result.Parts) != 3 || again.Result.Parts[1].URL != p[1].URL {
		t.Errorf("the record has %+v, %v", again, err)
	}
}
