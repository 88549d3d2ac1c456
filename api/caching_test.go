package api_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"testing"
)

func TestETag(t *testing.T) {
	f := house(t)
	for _, path := range []string{"/api/tools", "/api/tools?view=grouped", "/api/tools?format=openai", "/api/sessions", "/api/sessions/s1", "/openapi.json"} {
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
			r := f.send(request{path: path, header: http.Header{"Accept-Encoding": {"identity"}, "If-None-Match": {value}}})
			if r.status != status || r.header.Get("Etag") != tag || (status == 304) != (len(r.body) == 0) {
				t.Errorf("%s If-None-Match %s: status %d, ETag %s, %d bytes", path, value, r.status, r.header.Get("Etag"), len(r.body))
			}
		}
	}
}

func TestETagFollowsTheContent(t *testing.T) {
	f := house(t)
	tag := f.get("/api/tools?name=locate").header.Get("Etag")
	d := f.connect(0, session("more"), echo, tools("other")...)
	if f.get("/api/tools?name=locate").header.Get("Etag") != tag {
		t.Error("the tag changed although the content did not")
	}
	f.must(d.local.PutTools(t.Context(), tools("locate"), nil))
	if f.get("/api/tools?name=locate").header.Get("Etag") == tag {
		t.Error("the tag did not change with the content")
	}
}

// Both encodings are right, and a cache can tell them apart.
func TestGzip(t *testing.T) {
	f := house(t)
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
	if resp.header.Get("Content-Encoding") != "gzip" || !slices.Contains(resp.header.Values("Vary"), "Accept-Encoding") {
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
		"gzip;q=0": false, "gzip; q=0.0, *": false, "br": false, "*;q=0": false, "": false, "gzip;q=no": false, "gzip;q=2": false,
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
