package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

func TestETag(t *testing.T) {
	f := threeDevices(t)
	for _, path := range []string{"/api/tools", "/api/tools?view=grouped", "/api/tools?format=openai",
		"/api/sessions", "/api/sessions/s1", "/openapi.json"} {
		plain := http.Header{"Accept-Encoding": {"identity"}}
		first := f.send(request{path: path, header: plain})
		tag := first.header.Get("Etag")
		if first.status != 200 || len(tag) < 10 || tag[0] != '"' || first.header.Get("Cache-Control") != "no-cache" {
			t.Fatalf("%s: status %d, headers %v", path, first.status, first.header)
		}
		for value, status := range map[string]int{
			tag: 304, "W/" + tag: 304, `"other", ` + tag: 304, `"other",W/` + tag + `,"more"`: 304, "*": 304,
			`"other"`: 200, tag[1 : len(tag)-1]: 200, `"` + tag: 200, "": 200,
		} {
			r := f.send(request{path: path, header: http.Header{"Accept-Encoding": {"identity"},
				"If-None-Match": {value}}})
			if r.status != status || r.header.Get("Etag") != tag || (status == 304) != (len(r.body) == 0) {
				t.Errorf("%s If-None-Match %s: status %d, ETag %s, %d bytes", path, value, r.status,
					r.header.Get("Etag"), len(r.body))
			}
		}
	}
}

func TestETagFollowsTheContent(t *testing.T) {
	f := threeDevices(t)
	tag := f.get("/api/tools?name=locate").header.Get("Etag")
	d := f.connect(0, session("more"), echo, tools("other")...)
	f.must(d.local.PutTools(t.Context(), tools("locate"), nil))
	if f.get("/api/tools?name=locate").header.Get("Etag") == tag {
		t.Error("the tag did not change with the content")
	}
	seen := make(map[string]string)
	for _, path := range []string{
		"/api/tools", "/api/tools?view=grouped", "/api/tools?limit=7", "/api/tools?name=locate",
		"/api/tools?format=mcp",
		"/api/sessions", "/api/sessions?limit=7", "/api/sessions/s1", "/api/sessions/more",
	} {
		now := f.get(path).header.Get("Etag")
		if other := seen[now]; other != "" {
			t.Errorf("%s and %s have the same tag", path, other)
		}
		seen[now] = path
	}
	tagOf := func(path string) string { return f.get(path).header.Get("Etag") }
	if tagOf("/api/tools?limit=7&name=locate") != tagOf("/api/tools?name=locate&limit=7") {
		t.Error("the tag depends on the order of the parameters")
	}
}

// A poll that finds nothing new costs one question, and a listing that fails is never taken for one that has not
// changed.
func TestPollsAreCheap(t *testing.T) {
	var asked directoryCounter
	f := newFleet(t, setup{change: func(c *api.Config) { asked.Directory = c.Directory; c.Directory = &asked }})
	d := f.connect(0, session("s1"), echo, tools("a")...)
	for _, path := range []string{"/api/tools", "/api/tools?view=grouped", "/api/tools?format=openai",
		"/api/sessions", "/api/sessions/s1"} {
		tag := f.get(path).header.Get("Etag")
		before := asked.listings.Load()
		r := f.send(request{path: path, header: http.Header{"If-None-Match": {tag}}})
		if r.status != 304 || asked.listings.Load() != before {
			t.Errorf("%s: status %d, %d listings", path, r.status, asked.listings.Load()-before)
		}
	}
	tag := f.get("/api/sessions/s1").header.Get("Etag")
	d.gone()
	for _, match := range []string{tag, "*"} {
		r := f.send(request{path: "/api/sessions/s1", header: http.Header{"If-None-Match": {match}}})
		wantProblem(r, 409, registry.CodeNotConnected)
	}
}

// directoryCounter counts what costs more than a version.
type directoryCounter struct {
	registry.Directory
	listings atomic.Int64
}

func (d *directoryCounter) Entry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	d.listings.Add(1)
	return d.Directory.Entry(ctx, key)
}

func (d *directoryCounter) List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	d.listings.Add(1)
	return d.Directory.List(ctx, q)
}

func (d *directoryCounter) OfferedTools(
	ctx context.Context, q registry.OfferedToolQuery,
) ([]registry.OfferedTool, string, error) {
	d.listings.Add(1)
	return d.Directory.OfferedTools(ctx, q)
}

// Both encodings are right, and a cache can tell them apart.
func TestGzip(t *testing.T) {
	f := threeDevices(t)
	send := func(accept, match string) reply {
		header := http.Header{"Accept-Encoding": {accept}}
		if match != "" {
			header["If-None-Match"] = []string{match}
		}
		return f.send(request{path: "/openapi.json", header: header})
	}
	// The transport's own Accept-Encoding is undone by itself, so its body is the document.
	document := f.get("/openapi.json").body
	identity := send("identity", "")
	if !bytes.Equal(identity.body, document) || identity.header.Get("Content-Encoding") != "" {
		t.Fatal("the plain document is not plain")
	}
	resp := rawGet(f, "gzip, deflate, br")
	if resp.header.Get("Content-Encoding") != "gzip" || !slices.Contains(resp.header.Values("Vary"),
		"Accept-Encoding") {
		t.Fatalf("headers %v", resp.header)
	}
	zr, err := gzip.NewReader(bytes.NewReader(resp.body))
	f.must(err)
	if unzipped, err := io.ReadAll(zr); err != nil || !bytes.Equal(unzipped, document) {
		t.Fatalf("unzipped it is another document: %v", err)
	}
	plainTag, zipTag := identity.header.Get("Etag"), resp.header.Get("Etag")
	if plainTag == zipTag || !slices.Contains(identity.header.Values("Vary"), "Accept-Encoding") {
		t.Fatalf("tags %s and %s", plainTag, zipTag)
	}
	if send("identity", zipTag).status != 200 || send("identity", plainTag).status != 304 {
		t.Error("a plain answer is compared with the wrong tag")
	}
	if r := rawGet(f, "gzip", zipTag); r.status != 304 || len(r.body) != 0 || r.header.Get("Vary") == "" {
		t.Errorf("status %d", r.status)
	}
	for accept, zipped := range map[string]bool{
		"*": true, "gzip;q=0.1": true, "GZIP": true, "x-gzip": true, "br, *;q=0.5": true,
		"gzip;q=0": false, "gzip; q=0.0, *": false, "br": false, "*;q=0": false, "": false, "gzip;q=no": false,
		"gzip;q=2": false, "gzip;q=0;q=1, *": false, `gzip;q=""`: false,
	} {
		if got := rawGet(f, accept).header.Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("Accept-Encoding %q: compressed %v", accept, got)
		}
	}
}

// rawGet fetches the document without looking inside compressed answers.
func rawGet(f *fleet, accept string, match ...string) reply {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.pods[0].server.URL+"/openapi.json", nil)
	f.must(err)
	req.Header["Accept-Encoding"] = []string{accept}
	if len(match) > 0 {
		req.Header["If-None-Match"] = match
	}
	resp, err := f.pods[0].server.Client().Do(req)
	f.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	f.must(err)
	return reply{T: f.T, status: resp.StatusCode, header: resp.Header, body: body}
}
