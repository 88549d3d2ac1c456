package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// filesFleet serves files. keep stores one of a tenant, and returns its link; slot returns that of an upload.
func filesFleet(t *testing.T) (f *fleet, keep, slot func(tenant string, data []byte) string) {
	files, err := blobs.Open(t.Context(), blobs.Config{
		URL: "file://" + t.TempDir(), Store: memory.New(memory.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	f = newFleet(t, setup{change: func(c *api.Config) { c.Files = files }})
	t.Cleanup(func() { f.must(files.Close()) })
	key := func(tenant string) registry.Key { return registry.Key{Tenant: tenant, Session: "s"} }
	keep = func(tenant string, data []byte) string {
		p := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Name: "clip.mp4", Data: data}
		p, err := files.Keep(t.Context(), key(tenant), "c", p)
		f.must(err)
		return p.URL
	}
	slot = func(tenant string, data []byte) string {
		p := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Size: int64(len(data))}
		s, err := files.Reserve(t.Context(), key(tenant), "c", p, time.Minute)
		f.must(err)
		return s.URL
	}
	return f, keep, slot
}

// Clients that do not read what a link leads to take a part of the places of its tenant, and none of those of others or
// of uploads. Who is refused is not sent the headers of the file.
func TestOneLinkDoesNotTakeAllTransfers(t *testing.T) {
	f, keep, slot := filesFleet(t)
	large := keep("hostile", bytes.Repeat([]byte("x"), 48<<20)) // more than the buffers of a connection
	served := 0
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.pods[0].server.URL+large, nil)
		f.must(err)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // nobody reads its body
		f.must(err)
		t.Cleanup(func() { f.must(resp.Body.Close()) })
		if resp.StatusCode == http.StatusOK {
			served++
			continue
		}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json" ||
			resp.Header.Get("Content-Disposition") != "" || resp.ContentLength > 4096 {
			t.Errorf("a refused download: %s %v", resp.Status, resp.Header)
		}
		break
	}
	if served != 8 {
		t.Errorf("a link has %d of 32 places", served)
	}
	if r := f.get(keep("hostile", []byte("small"))); r.status != http.StatusOK { // another link of that tenant
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := f.get(keep("other", []byte("hello"))); r.status != http.StatusOK || string(r.body) != "hello" {
		t.Errorf("%d %s", r.status, r.body)
	}
	r := f.send(request{method: http.MethodPut, path: slot("other", []byte("hello")), body: "hello",
		header: http.Header{"Content-Type": {"video/mp4"}}})
	if r.status != http.StatusNoContent {
		t.Errorf("an upload: %d %s", r.status, r.body)
	}
}

// One session of a tenant cannot take all places for uploads.
func TestOneSessionDoesNotTakeAllUploads(t *testing.T) {
	f, _, slot := filesFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	statuses := make(chan string, 64)
	begun := make(chan bool, 64)
	upload := func(link string) {
		body := &begins{Reader: strings.NewReader("h"), ctx: ctx, begun: begun}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, f.pods[0].server.URL+link, body)
		if err != nil {
			t.Error(err)
			return
		}
		req.ContentLength = 5
		req.Header.Set("Content-Type", "video/mp4")
		req.Header.Set("Expect", "100-continue") // so that the body is sent once there is a place
		resp, err := (&http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}).RoundTrip(req)
		switch {
		case err == nil:
			statuses <- resp.Status
			_ = resp.Body.Close()
		case ctx.Err() == nil:
			t.Error(err)
		}
	}
	for range 8 {
		go upload(slot("t", []byte("hello")))
		await(t, "an upload to begin", begun)
	}
	go upload(slot("t", []byte("hello")))
	if got := await(t, "an answer", statuses); got != "429 Too Many Requests" {
		t.Errorf("a ninth upload: %s", got)
	}
	cancel()
}

// begins is a body that tells when it is read, and whose end does not come before ctx ends.
type begins struct {
	io.Reader
	ctx   context.Context
	begun chan<- bool
}

func (b *begins) Read(p []byte) (int, error) {
	if n, _ := b.Reader.Read(p); n > 0 {
		b.begun <- true
		return n, nil
	}
	<-b.ctx.Done()
	return 0, errors.New("the client left")
}
