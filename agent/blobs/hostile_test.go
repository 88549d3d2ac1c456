package blobs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// bucketOf returns the URL of a bucket whose server is h.
func bucketOf(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return "s3://files?region=us-east-1&endpoint=" + s.URL + "&use_path_style=true"
}

// A bucket leads the gateway nowhere else: neither is a file taken from there, nor anything sent there.
func TestBucketThatRedirects(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte("inner"))
	}))
	defer elsewhere.Close()
	var away atomic.Bool
	s := open(t, bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if away.Load() {
			http.Redirect(w, r, elsewhere.URL+"/latest/meta-data", http.StatusTemporaryRedirect)
		}
	}))
	secret := reserve(t, s)
	if err := s.receiveAs(t.Context(), secret, clip.MIMEType, 5, "hello"); err != nil {
		t.Fatal(err)
	}
	b, err := s.Find(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	if file, err := s.Open(t.Context(), b); err == nil {
		text, _ := io.ReadAll(file)
		_ = file.Close()
		t.Errorf("the file is %q", text)
	}
	if err := s.receiveAs(t.Context(), reserve(t, s), clip.MIMEType, 5, "hello"); err == nil {
		t.Error("an upload went elsewhere")
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("another server was asked %d times", n)
	}
}

// What a bucket answers beside files is bounded: the SDK holds it whole.
func TestBucketThatDoesNotEnd(t *testing.T) {
	const most, end = 60 << 20, 200 << 20
	for name, status := range map[string]int{
		"a list": http.StatusOK, "an error": http.StatusForbidden, "a place": http.StatusOK,
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			url := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				begin, piece := `<ListBucketResult><Name>files</Name>`, "<Contents><Key>x</Key></Contents>"
				if name == "a place" {
					begin, piece = `<LocationConstraint>`, "somewhere"
				}
				_, err := io.WriteString(w, begin)
				piece = strings.Repeat(piece, 30_000)
				for err == nil && sent.Load() < end {
					var n int
					n, err = io.WriteString(w, piece)
					sent.Add(int64(n))
				}
			})
			if name == "a place" { // a client that does not know where the bucket is asks
				url = strings.Replace(url, "region=us-east-1&", "", 1)
			}
			bucket, err := openBucket(url, openFolder)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = bucket.close() }()
			if files, err := bucket.before(t.Context(), "~", 10); err == nil {
				t.Errorf("files: %s", files)
			}
			if n := sent.Load(); n > most {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}

// A list page takes memory by its length: the client would take 1.7 KB for each file that is named with eleven bytes.
func TestAListOfManyNames(t *testing.T) {
	const most = 256 << 20 // bytes that are allocated, not held
	for piece, fails := range map[string]bool{
		"<Contents/>": true, "<Contents><Key>x</Key></Contents>": true,
		"<Contents><Key>" + strings.Repeat("x", 1000) + "</Key></Contents>": false,
	} {
		n := 3 << 20 / len(piece)
		if !fails {
			n = 1000
		}
		url := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "<ListBucketResult><Name>files</Name>%s</ListBucketResult>", strings.Repeat(piece, n))
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Probe(t.Context(), url)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; (err != nil) != fails || took > most {
			t.Errorf("%.40s, %d times: %v, with %d MiB", piece, n, err, took>>20)
		}
	}
}

// Of an upload no more than a part is on its way to a bucket, and in memory, at a time.
func TestUploadsInParts(t *testing.T) {
	const size = 4 * partBytes
	var now, most, parts atomic.Int32
	s := open(t, bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Has("partNumber"):
			most.Store(max(most.Load(), now.Add(1)))
			n, _ := io.Copy(io.Discard, r.Body)
			if n > partBytes+1<<20 { // with its checksums
				t.Errorf("a part of %d bytes", n)
			}
			w.Header().Set("ETag", `"e"`)
			parts.Add(1)
			now.Add(-1)
		case query.Has("uploads"):
			_, _ = io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId>`+
				`</InitiateMultipartUploadResult>`)
		default:
			_, _ = io.WriteString(w, `<CompleteMultipartUploadResult><Bucket>files</Bucket><Key>k</Key>`+
				`<ETag>"e"</ETag></CompleteMultipartUploadResult>`)
		}
	}))
	p := clip
	p.Size = size
	slot, err := s.Reserve(t.Context(), key, registry.BlobOwner{}, "c1", p, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Find(t.Context(), strings.TrimPrefix(slot.URL, "/uploads/"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Receive(t.Context(), b, p.MIMEType, size, strings.NewReader(strings.Repeat("x", size))); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(parts.Load(), most.Load()); got != "4 1" {
		t.Errorf("parts, and those at once: %s", got)
	}
}

// A list whose pages are empty, and never the last one, ends soon.
func TestListThatDoesNotEnd(t *testing.T) {
	var asked atomic.Int64
	bucket, err := openBucket(bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<ListBucketResult><Name>files</Name><IsTruncated>true</IsTruncated>`+
			`<NextContinuationToken>t%d</NextContinuationToken></ListBucketResult>`, asked.Add(1))
	}), openFolder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bucket.close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if files, err := bucket.before(ctx, "~", 10); err == nil || ctx.Err() != nil || asked.Load() > maxPages {
		t.Errorf("%d files, %v after %d requests", len(files), err, asked.Load())
	}
}

// A list that fails after some pages is used as far as it came: the expired files in it are removed.
func TestAListThatFailsIsUsed(t *testing.T) {
	var asked, removed atomic.Int64
	s := open(t, bucketOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			removed.Add(1)
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Query().Has("list-type"):
			page := `<ListBucketResult><Name>files</Name><IsTruncated>true</IsTruncated>` +
				`<NextContinuationToken>t%[1]d</NextContinuationToken>`
			if n := asked.Add(1); !r.URL.Query().Has("continuation-token") {
				fmt.Fprintf(w, page+`<Contents><Key>%012d-a</Key><Size>1</Size></Contents>`+
					`<Contents><Key>%012d-b</Key><Size>1</Size></Contents></ListBucketResult>`, n, 1, 2)
			} else {
				fmt.Fprintf(w, page+`</ListBucketResult>`, n)
			}
		}
	}))
	if err := s.sweep(t.Context(), time.Now()); err == nil || removed.Load() < 2 { // the service also sweeps by itself
		t.Errorf("%d files were removed, %v", removed.Load(), err)
	}
}

// The headers of a bucket's answers are bounded: as many as there are transfers are in memory at a time.
func TestHeadersOfABucketAreBounded(t *testing.T) {
	for length, want := range map[int]bool{100: true, maxHeader / 2: false} {
		bucket, err := openBucket(bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("ETag", `"e"`)
			for i := range 4 {
				w.Header().Set(fmt.Sprint("X-Amz-Meta-", i), strings.Repeat("x", length))
			}
			_, _ = io.WriteString(w, "bytes")
		}), openFolder)
		if err != nil {
			t.Fatal(err)
		}
		file, err := bucket.get(t.Context(), "name")
		if (err == nil) != want {
			t.Errorf("headers of %d bytes: %v", length, err)
		}
		if err == nil {
			_ = file.Close()
		}
		_ = bucket.close()
	}
}
