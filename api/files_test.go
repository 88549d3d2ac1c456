package api_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/blobs"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// filesFleet serves files behind a proxy. keep stores one of a tenant, and returns its link; slot returns that of an
// upload. Both may be told the session and the user, too: "tenant/session/user".
func filesFleet(t *testing.T) (f *fleet, keep, slot func(of string, data []byte) string) {
	files, err := blobs.Open(t.Context(), blobs.Config{
		URL: "file://" + t.TempDir(), Store: memory.New(memory.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := auth.NewSources([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	f = newFleet(t, setup{change: func(c *api.Config) { c.Files, c.Sources = files, sources }})
	t.Cleanup(func() { f.must(files.Close()) })
	key := func(of string) registry.Key {
		part := strings.Split(of+"//", "/")
		return registry.Key{Tenant: part[0], Session: cmp.Or(part[1], "s")}
	}
	owner := func(of string) registry.BlobOwner { return registry.BlobOwner{User: strings.Split(of+"//", "/")[2]} }
	keep = func(of string, data []byte) string {
		p := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Name: "clip.mp4", Data: data}
		p, err := files.Store(t.Context(), key(of), owner(of), "c", p)
		f.must(err)
		return p.URL
	}
	slot = func(of string, data []byte) string {
		p := registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Size: int64(len(data))}
		s, err := files.Reserve(t.Context(), key(of), owner(of), "c", p, time.Minute)
		f.must(err)
		return s.URL
	}
	return f, keep, slot
}

// unbuffered is a file that the buffers of a connection do not hold.
func unbuffered() []byte { return bytes.Repeat([]byte("x"), 48<<20) }

// unread begins a download from an address, and does not read its body while the test runs.
func unread(f *fleet, link, from string) *http.Response {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.pods[0].server.URL+link, nil)
	f.must(err)
	req.Header.Set("X-Forwarded-For", from)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	f.must(err)
	f.Cleanup(func() { f.must(resp.Body.Close()) })
	return resp
}

// Clients that do not read what a link leads to take a part of the places of its tenant, and none of those of others or
// of uploads. Who is refused is not sent the headers of the file.
func TestOneLinkDoesNotTakeAllTransfers(t *testing.T) {
	f, keep, slot := filesFleet(t)
	large := keep("hostile", unbuffered())
	served := 0
	for {
		resp := unread(f, large, "")
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
	if r := f.get(keep("hostile/2", []byte("small"))); r.status != http.StatusOK { // of another session
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

// However many links and addresses a tenant has, it leaves places for the downloads of another. So does an address,
// however many tenants it has links of.
func TestDownloadsAreShared(t *testing.T) {
	served := func(f *fleet, link, from string) (n int) {
		for range 10 {
			if unread(f, link, from).StatusCode == http.StatusOK {
				n++
			}
		}
		return n
	}
	wantAnother := func(f *fleet, link, from string) {
		if status := unread(f, link, from).StatusCode; status != http.StatusOK {
			f.Errorf("another: %d", status)
		}
	}
	t.Run("tenant", func(t *testing.T) {
		f, keep, _ := filesFleet(t)
		held, large, link := 0, unbuffered(), keep("other", []byte("hello"))
		other := testkit.Alone(t, "file downloads", func() error {
			r, err := f.try(request{path: link, header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}})
			if err == nil && r.status != http.StatusOK {
				err = fmt.Errorf("%d %s", r.status, r.body)
			}
			return err
		})
		for n := range 4 {
			held += served(f, keep("hostile/"+strconv.Itoa(n), large), "192.0.2."+strconv.Itoa(n+1))
		}
		if held != 16 {
			t.Errorf("a tenant has %d of 32 places", held)
		}
		other.Crowded()
	})
	t.Run("address", func(t *testing.T) {
		f, keep, _ := filesFleet(t)
		held, large := 0, unbuffered()
		for n := range 4 {
			held += served(f, keep("tenant"+strconv.Itoa(n), large), "192.0.2.1")
		}
		if held != 16 {
			t.Errorf("an address has %d of 32 places", held)
		}
		wantAnother(f, keep("tenant3", []byte("hello")), "192.0.2.2")
	})
}

// stalled sends the beginning of an upload from an address, and its end never.
func stalled(ctx context.Context, f *fleet, link, from string) (status string) {
	f.Helper()
	begun, statuses := make(chan bool, 1), make(chan string, 1)
	body := &begins{Reader: strings.NewReader("h"), ctx: ctx, begun: begun}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, f.pods[0].server.URL+link, body)
	f.must(err)
	req.ContentLength = 5
	req.Header.Set("Content-Type", "video/mp4")
	req.Header.Set("X-Forwarded-For", from)
	req.Header.Set("Expect", "100-continue") // so that the body is sent once there is a place
	go func() {
		resp, err := (&http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}).RoundTrip(req)
		switch {
		case err == nil:
			statuses <- resp.Status
			_ = resp.Body.Close()
		case ctx.Err() == nil:
			f.Error(err)
		}
	}()
	select {
	case <-begun:
	case status = <-statuses:
	case <-time.After(testTimeout):
		f.Fatal("an upload neither begins nor is refused")
	}
	return status
}

// One session of a tenant cannot take all places for uploads.
func TestOneSessionDoesNotTakeAllUploads(t *testing.T) {
	f, _, slot := filesFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 8 {
		if got := stalled(ctx, f, slot("t", []byte("hello")), ""); got != "" {
			t.Errorf("an upload: %s", got)
		}
	}
	if got := stalled(ctx, f, slot("t", []byte("hello")), ""); got != "429 Too Many Requests" {
		t.Errorf("a ninth upload: %s", got)
	}
}

// However many sessions, links and addresses a user has, it leaves places for other users of the tenant.
func TestOneUserDoesNotTakeAllTransfers(t *testing.T) {
	f, keep, slot := filesFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from := func(n int) string { return "192.0.2." + strconv.Itoa(n+1) }
	sent, received, large := 0, 0, unbuffered()
	for n := range 10 {
		of := fmt.Sprintf("t/s%d/eve", n%5)
		if unread(f, keep(of, large), from(n)).StatusCode == http.StatusOK {
			sent++
		}
		if stalled(ctx, f, slot(of, []byte("hello")), from(n)) == "" {
			received++
		}
	}
	if sent != 8 || received != 8 {
		t.Errorf("a user has %d downloads and %d uploads, want a quarter of 32 each", sent, received)
	}
	if status := unread(f, keep("t/s0/ann", []byte("hello")), from(0)).StatusCode; status != http.StatusOK {
		t.Errorf("another user's download: %d", status)
	}
	if got := stalled(ctx, f, slot("t/s0/ann", []byte("hello")), from(0)); got != "" {
		t.Errorf("another user's upload: %s", got)
	}
}

// However many sessions and addresses a tenant has, it leaves places for the uploads of another.
func TestUploadsAreShared(t *testing.T) {
	f, _, slot := filesFleet(t)
	sent := 0
	other := testkit.Alone(t, "file uploads", func() error {
		sent++ // a session has few files
		path := slot(fmt.Sprint("other/", sent/50), []byte("hello"))
		r, err := f.try(request{method: http.MethodPut, path: path, body: "hello",
			header: http.Header{"Content-Type": {"video/mp4"}, "X-Forwarded-For": {"192.0.2.99"}}})
		if err == nil && r.status != http.StatusNoContent {
			err = fmt.Errorf("%d %s", r.status, r.body)
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := 0
	for session := range 5 {
		for range 8 {
			from := "192.0.2." + strconv.Itoa(session+1)
			if stalled(ctx, f, slot("hostile/"+strconv.Itoa(session), []byte("hello")), from) == "" {
				held++
			}
		}
	}
	if held != 16 {
		t.Errorf("a tenant has %d of 32 places", held)
	}
	other.Crowded()
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
