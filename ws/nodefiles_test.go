package ws_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// A picture that a node sends is a part of the result: in the result if it is small, else as a file with a link.
func TestNodeSendsPictures(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	files, err := blobs.Open(context.Background(), blobs.Config{Store: store, URL: "file://" + t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, files.Close()) })
	for name, c := range map[string]struct {
		change func(*ws.Config)
		bytes  int
		link   bool
		failed string
	}{
		"small":             {func(c *ws.Config) {}, 1000, false, ""},
		"large":             {func(c *ws.Config) { c.Files = files }, 3 << 20, true, ""},
		"large, no storage": {func(c *ws.Config) {}, 3 << 20, false, "FARHAND_BLOB_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGatewayOn(t, store, c.change)
			key := newKey(t)
			p := g.connectNode(key, "camera.snap")
			done := g.call(key.ID, "camera_snap", `{}`)
			id, _ := p.invoked("camera.snap")
			data := []byte("\xff\xd8\xff\xe0" + strings.Repeat("x", c.bytes-4))
			f := p.response(p.result(id, `"ok":true,"payload":{"format":"jpg","width":640,"height":480,"base64":"`+
				base64.StdEncoding.EncodeToString(data)+`"}`))
			if f["ok"] != true {
				t.Errorf("answered with %v", f)
			}
			o := await(t, done)
			if c.failed != "" {
				if o.err == nil || !strings.Contains(o.err.Error(), c.failed) {
					t.Errorf("the call ended with %.300v", o)
				}
				return
			}
			if o.err != nil || len(o.result.Parts) != 1 {
				t.Fatalf("the result: %.300v", o)
			}
			part := o.result.Parts[0]
			if part.Type != registry.PartImage || part.Size != int64(c.bytes) || (part.URL != "") != c.link ||
				strings.Contains(o.result.Output, "xxxxxxxx") {
				t.Errorf("the part: %s %d %q, the output %.200s", part.Type, part.Size, part.URL, o.result.Output)
			}
		})
	}
}
