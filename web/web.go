// Package web serves the pages for people: the console and the device page. Their sources are in src/, their built form
// in dist/, which is part of the program. `make web` builds it, and TestDistIsCurrent says when it is out of date.
//
// The pages hold no data. They read everything from the HTTP API with the credential of the person who uses them, so
// they need none to load. Their headers are in policy.go.
package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed all:dist
var dist embed.FS

// Names of the pages in dist.
const (
	consolePage = "console/index.html"
	devicePage  = "device/index.html"
	canvasFrame = "device/canvas.html" // in a frame of the device page
)

// Pages serves the pages. It is safe for concurrent use. A file is compressed when it is first requested, and then
// kept.
type Pages struct {
	files   map[string]*file // by name in dist
	paths   []string
	connect func(ctx context.Context) (origin string)
}

// file is a file of dist. Its content is read when it is first requested.
type file struct {
	header  map[string]string
	content func() content
}

type content struct {
	plain, compressed []byte // compressed is nil if that is not shorter by much
	tag               string
}

// New returns the pages of this build. connect returns an origin that the console may connect to besides its own, or
// "". It is called whenever the console is loaded. nil: there is none.
func New(connect func(ctx context.Context) (origin string)) *Pages {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name above is wrong
	}
	p := &Pages{files: make(map[string]*file), connect: connect, paths: []string{
		"/console", "/console/*view", "/device", "/device/canvas", "/assets/:file",
	}}
	_ = fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, _ error) error { // what is embedded can be read
		if entry.IsDir() {
			return nil
		}
		p.files[name] = &file{header: headersOf(name), content: sync.OnceValue(func() content { return read(built, name) })}
		if !strings.Contains(name, "/") {
			p.paths = append(p.paths, "/"+name)
		}
		return nil
	})
	return p
}

func read(built fs.FS, name string) content {
	text, _ := fs.ReadFile(built, name) // what is embedded can be read
	sum := sha256.Sum256(text)
	c := content{plain: text, tag: base64.RawURLEncoding.EncodeToString(sum[:15])}
	if compressible(name) && len(text) >= minCompressed {
		c.compressed = compress(text)
	}
	return c
}

// minCompressed is the length of the shortest file that is compressed, in bytes. Others fit one TCP segment anyway.
const minCompressed = 1400

// compressible reports whether the content of a file is text. Pictures are compressed already.
func compressible(name string) bool { return path.Ext(name) != ".png" }

func compress(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only for a level that does not exist
	_, _ = w.Write(text)                                  // writing to a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// Paths returns the paths of the pages: exact ones, and ones that end with a parameter in gin's form. They do not
// change.
func (p *Pages) Paths() []string { return slices.Clone(p.paths) }

// Serve answers a GET or HEAD request for one of Paths, and reports whether there is such a file. If not, it has
// written nothing. Every path below /console/ is the console, so each of its views has an address.
func (p *Pages) Serve(w http.ResponseWriter, r *http.Request) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "console":
		http.Redirect(w, r, "/console/", http.StatusPermanentRedirect)
		return true
	case strings.HasPrefix(name, "console/"):
		name = consolePage
	case name == "device":
		name = devicePage
	case name == "device/canvas":
		name = canvasFrame
	}
	f, ok := p.files[name]
	if !ok {
		return false
	}
	origin := ""
	if name == consolePage && p.connect != nil {
		origin = p.connect(r.Context())
	}
	f.serve(w, r, origin)
	return true
}

// serve writes the file. Its script may connect to an origin besides its own, unless that is empty.
func (f *file) serve(w http.ResponseWriter, r *http.Request, origin string) {
	header, c := w.Header(), f.content()
	for name, value := range f.header {
		header.Set(name, value)
	}
	if origin != "" {
		header.Set("Content-Security-Policy", connecting(origin))
		// After a 304, browsers keep the policy of the copy that they have, so another policy is another page.
		c.tag += "-" + base64.RawURLEncoding.EncodeToString([]byte(origin))
	}
	body, tag := c.plain, `"`+c.tag+`"`
	if c.compressed != nil {
		header.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header) {
			body, tag = c.compressed, `"`+c.tag+`-gzip"`
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", tag)
	if slices.ContainsFunc(strings.Split(r.Header.Get("If-None-Match"), ","), func(known string) bool {
		return strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag
	}) {
		header.Del("Content-Encoding")
		header.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // on failure the client is gone
	}
}

// acceptsGzip reads the form of Accept-Encoding that browsers send. Other clients may get the longer form.
func acceptsGzip(header http.Header) bool {
	for coding := range strings.SplitSeq(header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(coding) == "gzip" {
			return true
		}
	}
	return false
}
