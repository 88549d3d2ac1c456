package chat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// openFiles returns files in a folder of their own, at most tenantBytes of a tenant.
func openFiles(t *testing.T, tenantBytes int64) *blobs.Service {
	t.Helper()
	files, err := blobs.Open(t.Context(), blobs.Config{
		URL: "file://" + t.TempDir(), Store: memory.New(memory.Options{}), TenantBytes: tenantBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return files
}

// TestLinksOfResults: people get a link to each part of a result, the same wherever the result is told. What is over
// the budget is described. The model is shown the image as before, and reads no link.
func TestLinksOfResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		photo := pictured(t, 100)
		files := openFiles(t, registry.BlobShare*1000) // 1000 bytes for this conversation
		r := newRig(t, Limits{}, use(tool("a", "camera", "{}")), text("a cat"))
		r.engine.cfg.Files = files
		r.tools.set("camera", returnsParts(imagePart(photo), imagePart(make([]byte, 1000)),
			registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", URL: registry.PathBlob + "other", Size: 9}))
		ev := &events{}
		reply, err := r.engine.Ask(t.Context(), Ask{Key: key, Content: "look"}, ev.emit)
		if err != nil {
			t.Fatal(err)
		}
		parts := ev.of(EventToolResult)[0].Parts
		if len(parts) != 3 || parts[1].URL != "" || parts[1].Size != 1000 || parts[2].URL != registry.PathBlob+"other" {
			t.Fatalf("people are told of %+v", parts)
		}
		wantFile(t, files, parts[0].URL, photo)

		stored, err := r.store.Conversation(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		for what, told := range map[string]any{"events": ev.all, "reply": reply, "conversation": stored} {
			all, err := json.Marshal(told)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(all, []byte(parts[0].URL)) ||
				bytes.Contains(all, []byte(base64.StdEncoding.EncodeToString(photo)[:12])) {
				t.Errorf("the link is not in the %s, or the bytes are", what)
			}
		}
		sent := r.model.asked()[1].Messages
		result := sent[len(sent)-1]
		if len(result.Pictures) != 1 || !bytes.Equal(result.Pictures[0].Data, photo) ||
			strings.Contains(result.Content, registry.PathBlob) {
			t.Errorf("the model is shown %d images, and reads %s", len(result.Pictures), result.Content)
		}
	})
}

// wantFile checks what is behind a link.
func wantFile(t *testing.T, files *blobs.Service, url string, want []byte) {
	t.Helper()
	secret, _ := strings.CutPrefix(url, registry.PathBlob)
	b, err := files.Find(t.Context(), secret)
	if err != nil {
		t.Fatalf("%q: %v", url, err)
	}
	body, err := files.Open(t.Context(), b)
	if err != nil {
		t.Fatalf("%q: %v", url, err)
	}
	got, err := io.ReadAll(body)
	if err != nil || body.Close() != nil || !bytes.Equal(got, want) || b.SessionID != key.Session {
		t.Errorf("%d bytes of %+v, %v", len(got), b, err)
	}
}
