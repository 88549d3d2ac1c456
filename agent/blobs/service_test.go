package blobs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	key  = registry.Key{Tenant: "t", Session: "s"}
	clip = registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", Name: "clip.mp4", Size: 5}
)

func open(t *testing.T, url string, change ...func(*Config)) *Service {
	t.Helper()
	cfg := Config{URL: url, Store: memory.New(memory.Options{})}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reserve returns the secret of a slot for clip.
func reserve(t *testing.T, s *Service) string {
	t.Helper()
	slot, err := s.Reserve(t.Context(), key, registry.BlobOwner{}, "c1", clip, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	secret, ok := strings.CutPrefix(slot.URL, registry.PathUpload)
	if !ok || !registry.ValidBlobSecret(secret) || slot.Size != clip.Size {
		t.Fatalf("slot %+v", slot)
	}
	return secret
}

func wantCode(t *testing.T, what string, err error, code registry.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func (s *Service) receive(ctx context.Context, secret, text string) error {
	return s.receiveAs(ctx, secret, clip.MIMEType, int64(len(text)), text)
}

func (s *Service) receiveAs(ctx context.Context, secret, mimeType string, size int64, text string) error {
	b, err := s.Find(ctx, secret)
	if err != nil {
		return err
	}
	return s.Receive(ctx, b, mimeType, size, strings.NewReader(text))
}

// read returns the file of a link, and its bytes.
func (s *Service) read(ctx context.Context, secret string) (registry.Blob, io.ReadCloser, error) {
	b, err := s.Find(ctx, secret)
	if err != nil {
		return b, nil, err
	}
	r, err := s.Open(ctx, b)
	return b, r, err
}

// roundTrip uploads a file, and reads it by its link.
func roundTrip(t *testing.T, s *Service) {
	t.Helper()
	secret := reserve(t, s)
	p := clip
	p.URL, p.Size = registry.PathUpload+secret, 1
	_, err := s.Link(t.Context(), key, "c1", p)
	wantCode(t, "before the upload", err, registry.CodeInvalidResult)
	_, _, err = s.read(t.Context(), secret)
	wantCode(t, "before the upload", err, registry.CodeNotFound)
	if err := s.receive(t.Context(), secret, "hello"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a second upload", s.receive(t.Context(), secret, "HELLO"), registry.CodeNotFound)
	linked, err := s.Link(t.Context(), key, "c1", p)
	if err != nil || linked.URL != registry.PathBlob+secret || linked.Size != 5 {
		t.Fatalf("%+v, %v", linked, err)
	}
	b, r, err := s.read(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(text) != "hello" || b.MIMEType != clip.MIMEType {
		t.Errorf("%q, %+v, %v", text, b, err)
	}
}

func TestRoundTrip(t *testing.T) {
	roundTrip(t, open(t, "file://"+t.TempDir()+"/made"))
}

// TestSlotsOfOthers: a slot is of one call, of one session, of one kind of file.
func TestSlotsOfOthers(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	secret := reserve(t, s)
	if err := s.receive(t.Context(), secret, "hello"); err != nil {
		t.Fatal(err)
	}
	p := clip
	p.URL = registry.PathUpload + secret
	for name, link := range map[string]func() error{
		"call": func() error { _, err := s.Link(t.Context(), key, "c2", p); return err },
		"session": func() error {
			_, err := s.Link(t.Context(), registry.Key{Tenant: "t", Session: "s2"}, "c1", p)
			return err
		},
		"tenant": func() error {
			_, err := s.Link(t.Context(), registry.Key{Tenant: "u", Session: "s"}, "c1", p)
			return err
		},
		"type": func() error {
			page := p
			page.MIMEType = "text/html"
			_, err := s.Link(t.Context(), key, "c1", page)
			return err
		},
		"address": func() error {
			other := p
			other.URL = "http://169.254.169.254/"
			_, err := s.Link(t.Context(), key, "c1", other)
			return err
		},
		"slot": func() error {
			other := p
			other.URL = registry.PathUpload + newSecret()
			_, err := s.Link(t.Context(), key, "c1", other)
			return err
		},
	} {
		wantCode(t, name, link(), registry.CodeInvalidResult)
	}
}

// TestUploadsThatDoNotFit: the length and the type are those that were asked for, and an upload that breaks off leaves
// nothing and uses its slot up.
func TestUploadsThatDoNotFit(t *testing.T) {
	folder := t.TempDir()
	s := open(t, "file://"+folder)
	secret := reserve(t, s)
	wantCode(t, "longer", s.receive(t.Context(), secret, "hello!"), registry.CodeInvalidRequest)
	wantCode(t, "type", s.receiveAs(t.Context(), secret, "text/html", 5, "hello"),
		registry.CodeInvalidRequest)
	wantCode(t, "short", s.receiveAs(t.Context(), secret, clip.MIMEType, 5, "hell"),
		registry.CodeInvalidRequest)
	wantCode(t, "after it", s.receive(t.Context(), secret, "hello"), registry.CodeNotFound)
	wantFiles(t, folder, 0)
	_, err := s.Reserve(t.Context(), key, registry.BlobOwner{}, "c1",
		registry.Part{Type: registry.PartFile, MIMEType: "a/b",
			Size: DefaultMaxUpload + 1}, time.Minute)
	wantCode(t, "too large", err, registry.CodePayloadTooLarge)
}

func wantFiles(t *testing.T, folder string, want int) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(folder, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil || n != want {
		t.Errorf("%d files, %v; want %d", n, err, want)
	}
}

// TestTwoUploads: of two who upload to one slot at the same time one does, and its bytes are whole.
func TestTwoUploads(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	for range 50 {
		secret := reserve(t, s)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, text := range []string{"aaaaa", "bbbbb"} {
			wg.Go(func() { errs[i] = s.receive(t.Context(), secret, text) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("both, or neither: %v", errs)
		}
		_, r, err := s.read(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || (string(text) == "aaaaa") != (errs[0] == nil) {
			t.Fatalf("%q, %v, %v", text, err, errs)
		}
		if err := s.cfg.Store.DropBlob(t.Context(), digest(secret)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepsTogether: pods that share a folder remove its expired files at the same time, and none of them fails.
func TestSweepsTogether(t *testing.T) {
	folder := t.TempDir()
	for range 500 {
		path := filepath.Join(folder, filepath.FromSlash(objectName(time.Now().Add(-time.Hour))))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var sweeps sync.WaitGroup
	for range 4 {
		s := open(t, "file://"+folder)
		sweeps.Go(func() {
			if err := s.sweep(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	sweeps.Wait()
	wantFiles(t, folder, 0)
}

// TestSweep: what has expired is removed, also what a dead pod or an emptied store has left; what lives stays, as does
// what others keep in the bucket.
func TestSweep(t *testing.T) {
	folder := t.TempDir()
	s := open(t, "file://"+folder)
	secret := reserve(t, s)
	if err := s.receive(t.Context(), secret, "hello"); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(folder, filepath.FromSlash(objectName(time.Now().Add(-time.Hour))))
	foreign := filepath.Join(folder, "readme.txt")
	for _, path := range []string{orphan, orphan + "123.tmp", foreign} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, folder, 2)
	if err := s.sweep(t.Context(), time.Now().Add(time.Minute+DefaultLife+sweepGrace+time.Second)); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, folder, 1)
}

// A bucket that is not there is an error of each sweep, and of a probe.
func TestNoBucket(t *testing.T) {
	url := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchBucket</Code></Error>")
	})
	s := open(t, url)
	if err := s.sweep(t.Context(), time.Now()); err == nil {
		t.Error("it was swept")
	}
	if err := Probe(t.Context(), url); err == nil {
		t.Error("files can be kept there")
	}
}

// What no bucket can have as a URL is said without the URL, which may hold a key.
func TestCheckURL(t *testing.T) {
	for _, url := range []string{
		"file://" + t.TempDir() + "/new/folder", "s3://files?region=eu-central-1",
		"s3://files?endpoint=https://s3.example.com&use_path_style=true&ssetype=AES256&region=x",
	} {
		if err := CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"", "x", "ftp://secret", "s3://", "s3://secret?nothing=1", "s3://files?use_path_style=secret",
		"s3://files?endpoint=secret", "s3://files?ssetype=secret", "s3://SECRET/secret", "file:///dev/null/secret",
		"file://secret/x",
	} {
		if err := CheckURL(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
