package farhand_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/client"
)

// TestUploads: a device uploads a file while its call runs, and whoever reads the answer or the record can fetch it; a
// browser that follows the link runs nothing.
func TestUploads(t *testing.T) {
	t.Parallel()
	cfg := farhand.DefaultConfig()
	cfg.BlobURL, cfg.MaxUpload = farhand.Secret("file://"+t.TempDir()), 4<<20
	g, err := farhand.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	bytesOf := map[string][]byte{
		"image/png": bytes.Repeat([]byte("p"), 3<<20), "text/html": []byte("<script>alert(1)</script>"),
	}
	var refused error
	device, err := client.New(server.URL, client.WithSession("phone"), client.WithTool(client.Tool{Name: "record"},
		func(ctx context.Context, c client.Call) (any, error) {
			result := client.Result{Output: "recorded"}
			for kind, data := range bytesOf {
				p := client.Part{Type: client.PartFile, MIMEType: kind, Name: "Küche.bin"}
				p, err := c.Upload(ctx, p, int64(len(data)), bytes.NewReader(data))
				if err != nil {
					return nil, err
				}
				result.Parts = append(result.Parts, p)
			}
			_, refused = c.Upload(ctx, client.Part{MIMEType: "a/b"}, 5<<20, strings.NewReader("x"))
			return result, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- device.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-device.Ready()

	resp, err := http.Post(server.URL+"/api/tools/record/call", "application/json",
		strings.NewReader(`{"idempotency_key":"k"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	var answer struct {
		Parts []struct {
			MIMEType string `json:"mime_type"`
			URL      string
			Size     int
		}
	}
	if err = errors.Join(err, resp.Body.Close(), json.Unmarshal(body, &answer)); err != nil || len(answer.Parts) != 2 {
		t.Fatalf("%.300s, %v", body, err)
	}
	if refused == nil || !strings.Contains(refused.Error(), "FARHAND_MAX_UPLOAD") {
		t.Errorf("a file that is too large: %v", refused)
	}
	for _, p := range answer.Parts {
		fetched, header := fetch(t, server.URL+p.URL)
		if !bytes.Equal(fetched, bytesOf[p.MIMEType]) || p.Size != len(fetched) {
			t.Errorf("%s: %d bytes, size %d", p.MIMEType, len(fetched), p.Size)
		}
		wantType, wantKind := "image/png", "inline"
		if p.MIMEType == "text/html" {
			wantType, wantKind = "application/octet-stream", "attachment"
		}
		if header.Get("Content-Type") != wantType || !strings.HasPrefix(header.Get("Content-Disposition"), wantKind) ||
			header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "private, no-store" ||
			header.Get("Content-Security-Policy") != "sandbox; default-src 'none'" {
			t.Errorf("%s: %v", p.MIMEType, header)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut,
			server.URL+strings.Replace(p.URL, "/blobs/", "/uploads/", 1), strings.NewReader("evil"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := http.DefaultClient.Do(req)
		if err != nil || again.StatusCode != http.StatusNotFound {
			t.Errorf("a second upload: %v, %v", again, err)
		}
		_ = again.Body.Close()
	}
	record, _ := fetch(t, server.URL+"/api/calls?limit=1")
	if bytes.Contains(record, []byte("/blobs/")) {
		t.Errorf("the list has links: %s", record)
	}
	if status := remove(t, server.URL+"/api/sessions/phone", ""); status != http.StatusNoContent {
		t.Fatalf("delete: %d", status)
	}
	for _, p := range answer.Parts {
		resp, err := http.Get(server.URL + p.URL)
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("a file of a deleted session: %v, %v", resp, err)
		}
		_ = resp.Body.Close()
	}
}

// fetch returns what is served at an address.
func fetch(t *testing.T, address string) ([]byte, http.Header) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, resp.Status, err)
	}
	return body, resp.Header
}

// refusing is a Redis that refuses to hide files: so many times, after so many that it did.
type refusing struct {
	*redisstore.Store
	before, times int
}

func (s *refusing) DropBlobsOf(ctx context.Context, key registry.Key, life time.Duration) error {
	if s.before--; s.before < 0 && s.times > 0 {
		s.times--
		return registry.StoreUnavailable("hide files", errors.New("refused"))
	}
	return s.Store.DropBlobsOf(ctx, key, life)
}

// TestAnErasedConversationKeepsNoFile: the files of a conversation that the other pod deletes cannot be read from
// either pod, also if the store refused to hide them: before the deletion, which then fails and is repeated, or after
// it.
func TestAnErasedConversationKeepsNoFile(t *testing.T) {
	t.Parallel()
	cfg := farhand.DefaultConfig()
	cfg.BlobURL = farhand.Secret("file://" + t.TempDir())
	redis := redistest.Start(t)
	var pods []string
	var store *refusing
	for range 2 {
		conn, err := redisstore.Dial(t.Context(), redisstore.Options{URL: redis.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		store = &refusing{Store: conn.Store()} // that of the last pod stays
		pods = append(pods, start(t, cfg, farhand.WithStore(store, conn.Bus())))
	}
	upload := func() string {
		device, err := client.New(pods[0], client.WithSession("phone"), client.WithTool(client.Tool{Name: "record"},
			func(ctx context.Context, c client.Call) (any, error) {
				part := client.Part{Type: client.PartFile, MIMEType: "text/plain"}
				part, err := c.Upload(ctx, part, 4, strings.NewReader("file"))
				return client.Result{Output: "recorded", Parts: []client.Part{part}}, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- device.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		<-device.Ready()
		_, raw := send(t, pods[1]+"/api/sessions/phone/tools/record/call", "{}", "")
		var answer struct{ Parts []struct{ URL string } }
		if err := json.Unmarshal([]byte(raw), &answer); err != nil || len(answer.Parts) != 1 {
			t.Fatalf("%s, %v", raw, err)
		}
		return answer.Parts[0].URL
	}
	for name, c := range map[string]struct {
		before, times int
		deletions     []int
	}{
		"never":               {0, 0, []int{http.StatusNoContent}},
		"before the deletion": {0, 1, []int{http.StatusServiceUnavailable, http.StatusNoContent}},
		"after the deletion":  {1, 1, []int{http.StatusNoContent}},
	} {
		link := upload()
		for _, pod := range pods {
			if got, _ := fetch(t, pod+link); string(got) != "file" {
				t.Errorf("%s: before, %q", name, got)
			}
		}
		store.before, store.times = c.before, c.times
		for _, want := range c.deletions {
			if status := remove(t, pods[1]+"/api/sessions/phone", ""); status != want {
				t.Errorf("%s: delete: %d, want %d", name, status, want)
			}
		}
		for _, pod := range pods {
			if status, _ := send(t, pod+link, "", ""); status != http.StatusNotFound {
				t.Errorf("%s: the link is answered with %d", name, status)
			}
		}
	}
}
